"""Where a model is: a folder, the cache of the hub, or the hub."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from pathlib import Path

from trireme.tools.deploy.hub.model_files import ModelFiles, missing_weights, read_folder
from trireme.tools.deploy.hub.other_folders import GGUF, gguf
from trireme.tools.deploy.hub.process import fetch_from_hub, find_on_hub
from trireme.tools.deploy.options import DeployError, DeployOptions, ModelNotUsableError

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_NAME = re.compile(r"[\w-][\w.-]*")


def find_model(options: DeployOptions) -> ModelFiles:
    """The model that was asked for, described; its weights may still be on the hub."""
    if not options.model.strip():
        raise DeployError("MODEL is empty: give the id of a model on the hub, such as facebook/opt-125m, or a folder")
    folder = Path(os.path.expanduser(options.model))
    if folder.is_dir():
        if options.revision is not None:
            raise DeployError(
                f"--revision {options.revision} is for models of the hub, and '{options.model}' is a folder here, "
                "which has one version: leave --revision out"
            )
        model = read_folder(folder.resolve(), str(folder.resolve()), "this folder")
    elif folder.is_file():
        raise ModelNotUsableError(_about_file(folder))
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


def _about_file(file: Path) -> str:
    if file.suffix.lower() == GGUF:
        return f"'{file}' cannot be served: {gguf([file.name])}"
    if (file.parent / "config.json").is_file():
        return f"'{file}' is a file of a model; give its folder: trireme deploy {shlex.quote(str(file.parent))}"
    return f"'{file}' is a file; give the folder that holds config.json and the weights"


def fetch_weights(model: ModelFiles) -> ModelFiles:
    """The same model with its weights on this machine."""
    return model if model.folder is not None else fetch_from_hub(model)


def served_name(options: DeployOptions, model: ModelFiles) -> str:
    """The name a client will use: `falcon-7b` for `tiiuae/falcon-7b`. Letters of all alphabets stay what they are, in
    the form in which keyboards write them; clients escape them in URLs."""
    wanted = unicodedata.normalize("NFC", options.name or model.short_name)
    name = wanted if options.name else re.sub(r"[^\w.-]+", "-", wanted).strip("-.") or "model"
    if _NAME.fullmatch(name) is None:
        raise DeployError(
            f"--name '{name}' cannot be the name of a folder and a part of a URL: use letters, digits, . _ -"
        )
    return name
