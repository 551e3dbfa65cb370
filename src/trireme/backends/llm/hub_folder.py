"""The files of a model that is named by its id on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.python.compat.huggingface.hub_reach import why_out_of_reach

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def is_hub_id(name: str) -> bool:
    """Whether a name may be one of the hub."""
    return _HUB_ID.fullmatch(name) is not None


def hub_folder(name: str, revision: str | None, called: str) -> Path:
    """Where its files are on this machine: in the hub's cache, into which they are fetched where they are missing.

    Raises ModelLoadError, with what the name's parameter is called, where they cannot be had.
    """
    hub = require("huggingface_hub", "transformers")
    try:
        return _snapshot(hub, name, revision, local_files_only=True)
    except Exception:  # not there, or not all of it
        pass
    try:
        return _snapshot(hub, name, revision, local_files_only=False)
    except Exception as error:
        reason = _why_out_of_reach() or (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ModelLoadError(
            f"the files of '{name}' could not be had: {reason}. Fetch them on a machine with a network "
            f"('trireme deploy {name} --no-serve'), point HF_HOME at a cache that has them, name a folder with "
            f"{called}, or set HF_TOKEN if it is private"
        ) from None


def _why_out_of_reach() -> str | None:
    """What the library tells as a setting of the user, where it was kept from asking a hub that is out of reach."""
    constants = require("huggingface_hub.constants", "transformers")
    if constants.HF_HUB_OFFLINE:  # which its user has set indeed
        return None
    reason = why_out_of_reach(constants.ENDPOINT, float(constants.HF_HUB_ETAG_TIMEOUT))
    return None if reason is None else f"the hub '{constants.ENDPOINT}' could not be reached ({reason})"


def _snapshot(hub: Any, name: str, revision: str | None, *, local_files_only: bool) -> Path:
    """Without a form of weights beside safetensors, where there are those."""
    folder = Path(
        hub.snapshot_download(name, revision=revision, allow_patterns=_FILES, local_files_only=local_files_only)
    )
    if not any(folder.glob("*.safetensors")):
        patterns = [*_FILES, "pytorch_model*.bin"]
        folder = Path(
            hub.snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=local_files_only)
        )
    if not (folder / "config.json").is_file() or not any((*folder.glob("*.safetensors"), *folder.glob("*.bin"))):
        raise FileNotFoundError(f"'{folder}' has no config.json or no weights")
    return folder
