"""An unpacked archive of SageMaker: which of its folders is the model that is meant."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from trireme.core.errors import InvalidArgumentError

_FORBIDDEN = ("/dev", "/proc", "/sys")
_ENSEMBLE = re.compile(r'platform\s*:\s*"ensemble"')
_CONFIG = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class ModelArchive:
    """A repository, and the folder in it that is asked for."""

    repository: Path
    folder: str


def read_archive(url: str) -> ModelArchive:
    """The folder that `url` names is a model, or a repository with one model or one ensemble and its steps.

    Blocks on the file system; raises InvalidArgumentError.
    """
    path = Path(os.path.abspath(url)) if url else None
    if path is None or any(path.is_relative_to(folder) for folder in _FORBIDDEN):
        raise InvalidArgumentError(f"'url' must be the folder of a model or a repository, found '{url}'")
    if not path.is_dir():
        raise InvalidArgumentError(f"'url' names '{url}', which is not a folder")
    if (path / _CONFIG).is_file():
        return ModelArchive(path.parent, path.name)
    folders = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    ensembles = [name for name in folders if _is_ensemble(path / name)]
    chosen = ensembles or folders
    if len(chosen) != 1:
        found = ", ".join(folders) or "none"
        raise InvalidArgumentError(f"'{url}' must have one model, or one ensemble among its models; found: {found}")
    return ModelArchive(path, chosen[0])


def _is_ensemble(folder: Path) -> bool:
    try:
        return _ENSEMBLE.search((folder / _CONFIG).read_text(errors="replace")) is not None
    except OSError:
        return False
