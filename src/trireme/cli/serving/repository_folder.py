"""Tells a repository from one of its models, which people name in its place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True)
class MistakenFolder:
    """A model, or a version of one, that was named as a repository."""

    text: str
    """What the folder is."""
    repository: str
    """The folder that was meant, as seen from here."""


def mistaken_folder(path: Path) -> MistakenFolder | None:
    """What is wrong with a folder that is to be a repository; None where it may be one."""
    folder = path.absolute()
    if _is_version_name(folder) and (folder.parent / "config.pbtxt").is_file():
        text = f"'{path}' is a version of the model '{folder.parent.name}', and not the folder around the models"
        return MistakenFolder(text, os.path.relpath(folder.parents[1]))
    if not _is_model(folder):
        return None
    return MistakenFolder(f"'{path}' is a model, and not the folder around it", os.path.relpath(folder.parent))


def _is_model(folder: Path) -> bool:
    if (folder / "config.pbtxt").is_file() or (folder / "1").is_dir():
        return True
    if (folder / "config.json").is_file() and any(any(folder.glob(kind)) for kind in _WEIGHTS):
        return True  # as Hugging Face saves one
    return any(_is_version_name(version) for version in (file.parent for file in folder.glob("*/model.*")))


def _is_version_name(folder: Path) -> bool:
    return folder.name.isascii() and folder.name.isdecimal()
