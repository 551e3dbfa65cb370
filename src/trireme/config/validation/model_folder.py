"""What a folder looks like that does not tell which backend runs it, and what to do about it."""

from __future__ import annotations

import os
from pathlib import Path

from trireme.config.autofill import MODEL_FORMATS

_USUAL = "config.pbtxt, and the model's file in a folder named by the version, such as 1/model.py or 1/model.onnx"
_SHOWN = 3


def folder_advice(folder: Path) -> str:
    """A sentence for whoever put the folder into the repository."""
    names = _names_in(folder)
    if not names:
        return _unreadable(folder) or f"the folder '{folder}' is empty: put a model there ({_USUAL}), or remove it"
    model = folder.parent
    if folder.name.isdecimal() and os.path.exists(model / "config.pbtxt"):
        return f"'{folder}' is a version of the model '{model}': serve the folder around that, '{model.parent}'"
    versions = sorted((name for name in names if name.isdecimal()), key=int)
    if versions:
        return _of_version(folder, versions[-1])
    inner = [name for name in names if _is_model(folder / name)]
    if inner:
        return f"'{folder}' looks like a repository of models itself ({_listed(inner)}): serve that folder"
    misplaced = version_advice(folder)
    if misplaced:
        return misplaced
    return f"the folder '{folder}' ({_listed(names)}) has no version: a model has {_USUAL}; move elsewhere what is none"


def version_advice(folder: Path) -> str:
    """What was probably meant to be a version of a folder that has none; empty where nothing looks like it."""
    names = _names_in(folder)
    known = [name for name in names if name in {form.filename for form in MODEL_FORMATS}]
    if known:
        return f"'{known[0]}' belongs into a folder named by the version: move it to '{folder / '1' / known[0]}'"
    folders = [name for name in names if os.path.isdir(folder / name)]
    numbered = [name for name in folders if name.lower().lstrip("vV_-").isdecimal()]
    if numbered:
        digits = numbered[0].lower().lstrip("vV_-")
        return f"a version's folder is named by a whole number alone: rename '{folder / numbered[0]}' to '{digits}'"
    return ""


def _is_model(folder: Path) -> bool:
    return os.path.exists(folder / "config.pbtxt") or os.path.isdir(folder / "1")


def _of_version(folder: Path, version: str) -> str:
    names = _names_in(folder / version)
    if not names:
        empty = f"the folder '{folder / version}' is empty: put the model's file there, such as model.py or model.onnx"
        return _unreadable(folder / version) or empty
    return (
        f"no file in '{folder / version}' ({_listed(names)}) has the name of a known one, such as model.py or "
        'model.onnx: write backend: "..." into its config.pbtxt, or rename the file'
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _unreadable(folder: Path) -> str:
    """Why its names are not known; empty where they are."""
    try:
        os.listdir(folder)
    except OSError as error:
        return f"the folder '{folder}' cannot be read: {error.strerror}"
    return ""


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []
