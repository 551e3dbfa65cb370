"""Tells a repository from one of its models, which people name in its place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trireme.config.autofill import HUGGING_FACE_CONFIG, MODEL_FORMATS

_MODEL_FILES = {known.filename for known in MODEL_FORMATS} - {HUGGING_FACE_CONFIG}
_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True)
class MistakenFolder:
    """A model, or a version of one, that was named as a repository."""

    text: str
    """What the folder is."""
    repository: str
    """The folder that was meant, absolute where the other one was."""


def mistaken_folder(path: Path) -> MistakenFolder | None:
    """What is wrong with a folder that is to be a repository; None where it may be one."""
    folder = path.absolute()
    if _is_version(folder):
        text = f"'{path}' is a version of the model '{folder.parent.name}', and not the folder around the models"
        return MistakenFolder(text, written_as(path, folder.parents[1]))
    if not _is_model(folder):
        return None
    return MistakenFolder(f"'{path}' is a model, and not the folder around it", written_as(path, folder.parent))


def written_as(path: Path, folder: Path) -> str:
    """The absolute path of a folder, or the way to it from here, as the other path was typed."""
    return str(folder) if path.is_absolute() else os.path.relpath(folder)


def _is_version(folder: Path) -> bool:
    """A folder with a number for its name may be a model or a repository as well."""
    if not _is_version_name(folder) or os.path.isfile(folder / "config.pbtxt") or _has_versions(folder):
        return False
    return os.path.isfile(folder.parent / "config.pbtxt") or (
        _has_model_file(folder) and not _has_models(folder.parent)
    )


def _is_model(folder: Path) -> bool:
    return os.path.isfile(folder / "config.pbtxt") or _is_saved_model(folder) or _has_versions(folder)


def _has_versions(folder: Path) -> bool:
    is_versioned = os.path.isdir(folder / "1") or any(
        _is_version_name(file.parent) for file in folder.glob("*/model.*")
    )
    return is_versioned and not _has_models(folder)


def _has_models(folder: Path) -> bool:
    """What is a model for certain, whatever its name."""
    if any(folder.glob("*/config.pbtxt")):
        return True
    versions = (file.parent for kind in ("*/*/model.*", "*/1/*") for file in folder.glob(kind))
    return any(_is_version_name(version) for version in versions)


def _has_model_file(folder: Path) -> bool:
    return any(os.path.exists(folder / name) for name in _MODEL_FILES) or _is_saved_model(folder)


def _is_saved_model(folder: Path) -> bool:
    """Whether it is as Hugging Face saves one."""
    return os.path.isfile(folder / HUGGING_FACE_CONFIG) and any(any(folder.glob(kind)) for kind in _WEIGHTS)


def _is_version_name(folder: Path) -> bool:
    return folder.name.isascii() and folder.name.isdecimal()
