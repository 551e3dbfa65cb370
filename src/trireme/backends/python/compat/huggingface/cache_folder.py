"""`TRANSFORMERS_CACHE`: releases from 5 on do not read it, older ones fail over a folder that cannot be written."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import metadata

from trireme.backends.python.compat.report import tell_change, tell_rescue
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.huggingface.hub_cache import CACHE_VARIABLES, HOME_VARIABLE, hub_cache

OLD_NAMES = ("TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE", "PYTORCH_PRETRAINED_BERT_CACHE")
NEW_NAME = CACHE_VARIABLES[0]
_FIRST_WITHOUT = 5
HOME_NAMES = (*CACHE_VARIABLES, HOME_VARIABLE)


@dataclass(frozen=True, slots=True)
class Places:
    """Two caches: the one that was chosen for the model, and where the libraries look when nobody says anything."""

    chosen: str
    usual: str


_places: list[Places] = []  # one, once the variables are in order; they are no longer what they were then


def places() -> Places | None:
    """None where the model named no cache, or where its own is the usual one."""
    return _places[0] if _places and _places[0].chosen != _places[0].usual else None


def point_to_usable_folder() -> None:
    """Gives the folder that the model asked for, or the best there is in its place, the name all releases read."""
    name = next((name for name in OLD_NAMES if os.environ.get(name)), None)
    if name is None:
        return
    wanted = os.path.expanduser(os.environ[name])
    chosen = _usable(wanted)
    if chosen == os.environ.get(NEW_NAME) == os.environ[name]:
        return
    _places[:] = [Places(chosen, hub_cache(os.environ))]
    os.environ[name] = os.environ[NEW_NAME] = chosen
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:  # which read the variables before the model set them
        constants.HF_HUB_CACHE = constants.HUGGINGFACE_HUB_CACHE = chosen  # type: ignore[attr-defined]
    why = "" if chosen == wanted else f" names '{wanted}', which cannot be used here, and"
    tell_change(
        "cache folder",
        f"{name}{why} is not read by current releases of transformers: {NEW_NAME} was set to '{chosen}'",
        "cache",
    )


def leave_unusable_folder() -> None:
    """Where the release reads the variable and nothing can be kept in the folder, which makes every download fail, the
    files are kept where they are without the variable."""
    name = next((name for name in OLD_NAMES if os.environ.get(name)), None)
    if name is None or not _is_read_by_release():
        return
    wanted = os.path.expanduser(os.environ[name])
    usual = hub_cache(os.environ)
    if _can_be_made(wanted) or wanted == usual or (os.path.isdir(wanted) and os.listdir(wanted)):
        return
    os.environ[name] = usual
    tell_rescue("cache folder", f"{name} names '{wanted}', which cannot be used here: it was set to '{usual}'")


def _usable(wanted: str) -> str:
    """The folder itself; else the one of that name in the model's own folder, which is what a path inside a container
    means (`.../model_repository/<model>/hf_cache`); else the libraries' usual one."""
    if os.path.isdir(wanted) and (os.access(wanted, os.W_OK) or os.listdir(wanted)):
        return wanted
    if any(os.environ.get(name) for name in HOME_NAMES):
        return hub_cache(os.environ)
    model_dir = _model_dir()
    if model_dir and os.path.basename(os.path.dirname(wanted.rstrip("/"))) == os.path.basename(model_dir):
        own = os.path.join(model_dir, os.path.basename(wanted.rstrip("/")))
        if _can_be_made(own):
            return own
    return wanted if _can_be_made(wanted) else hub_cache(os.environ)


def _is_read_by_release() -> bool:
    try:
        return int(metadata.version("transformers").partition(".")[0]) < _FIRST_WITHOUT
    except (metadata.PackageNotFoundError, ValueError):
        return False


def _model_dir() -> str:
    runtime = pb_runtime.find()
    return os.path.dirname(os.path.abspath(runtime.model_dir)) if runtime is not None and runtime.model_dir else ""


def _can_be_made(folder: str) -> bool:
    """Whether the library may create and fill it; it is not created before something is downloaded."""
    while not os.path.exists(folder):
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
