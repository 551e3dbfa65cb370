"""Where a model is: a folder, the cache of the hub, or the hub."""

from __future__ import annotations

import re
from pathlib import Path

from trireme.tools.deploy.hub_process import fetch_from_hub, find_on_hub
from trireme.tools.deploy.model_files import ModelFiles, missing_weights, read_folder
from trireme.tools.deploy.options import DeployError, DeployOptions, ModelNotUsableError

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_NAME = re.compile(r"[\w-][\w.-]*", re.ASCII)  # it stands in URLs, where other letters would have to be escaped


def find_model(options: DeployOptions) -> ModelFiles:
    """The model that was asked for, described; its weights may still be on the hub."""
    folder = Path(options.model).expanduser()
    if folder.is_dir():
        model = read_folder(folder.resolve(), str(folder.resolve()), "this folder")
    elif folder.is_file():
        raise ModelNotUsableError(f"'{folder}' is a file; give the folder that holds config.json and the weights")
    elif _HUB_ID.fullmatch(options.model) is None:
        raise ModelNotUsableError(
            f"there is no folder '{options.model}', and it is not an id of the hub such as owner/name"
        )
    else:
        model = find_on_hub(options.model, options.revision)
    missing = missing_weights(model)
    if missing is not None:
        raise ModelNotUsableError(f"'{options.model}' cannot be served: {missing}")
    return model


def fetch_weights(model: ModelFiles) -> ModelFiles:
    """The same model with its weights on this machine."""
    return model if model.folder is not None else fetch_from_hub(model)


def served_name(options: DeployOptions, model: ModelFiles) -> str:
    """The name a client will use: `falcon-7b` for `tiiuae/falcon-7b`."""
    name = options.name or re.sub(r"[^\w.-]+", "-", model.short_name, flags=re.ASCII).strip("-.") or "model"
    if _NAME.fullmatch(name) is None:
        raise DeployError(
            f"--name '{name}' cannot be the name of a folder and a part of a URL: use letters, digits, . _ -"
        )
    return name
