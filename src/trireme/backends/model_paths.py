"""Paths that a model's configuration names: they stay inside its folder, or lead where the server's owner allows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trireme.core.errors import InvalidArgumentError

FLAG = "--trusted-model-path"


def checked_path(what: str, text: str, base: Path, model_dir: Path, trusted: Sequence[Path]) -> Path:
    """The whole path; raises InvalidArgumentError where it leaves the model's folder and lies in no trusted one. A
    link inside may lead anywhere: who can put one there may put a model there. Blocks on the file system."""
    if "\0" in text:
        raise InvalidArgumentError(f"{what} must not contain a null character")
    path = Path(os.path.normpath(base.absolute() / text))
    for folder in (model_dir, *trusted):
        written = os.path.normpath(folder.absolute())
        if path.is_relative_to(written) or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            return path
    raise InvalidArgumentError(
        f"{what} '{path}' must stay within the model's folder; with {FLAG}={path.parent} the server takes it from there"
    )
