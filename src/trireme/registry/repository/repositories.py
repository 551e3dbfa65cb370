"""The model repositories on disk: which folders are models, and which names are ambiguous."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trireme.core.errors import InvalidArgumentError

DUPLICATE_REASON = "model appears in two or more repositories"


class ModelId(NamedTuple):
    """What tells one model from another: its name, and its repository where namespacing is on."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}::{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Scan:
    """What the repositories hold at one moment."""

    folders: Mapping[ModelId, Path]
    duplicates: frozenset[str]
    """Names found in several repositories although a name is to be one model; none of those is in `folders`."""


class Repositories:
    """The folders given with `--model-repository`, read afresh at every call."""

    def __init__(self, paths: Sequence[Path], has_namespacing: bool = False) -> None:
        self._paths = tuple(paths)
        self._has_namespacing = has_namespacing

    def check(self) -> None:
        """Raises where a repository is not a folder."""
        for path in self._paths:
            if not path.is_dir():
                raise InvalidArgumentError(f"repository path is not a valid directory: {path}")

    def scan(self) -> Scan:
        """Every model folder. A repository that cannot be read raises OSError: taking it for an empty one would
        unload its models."""
        found: dict[str, list[Path]] = {}
        for path in self._paths:
            with os.scandir(path) as entries:
                for entry in entries:
                    # `.git` and the like are no models, although they are folders.
                    if entry.is_dir() and not entry.name.startswith("."):
                        found.setdefault(entry.name, []).append(path / entry.name)
        return self._resolve(found)

    def locate(self, name: str) -> Scan:
        """The same for the folders of one name."""
        folders = [path / name for path in self._paths if os.path.isdir(path / name)]  # False for too long a name
        return self._resolve({name: folders} if folders else {})

    def _resolve(self, found: Mapping[str, Sequence[Path]]) -> Scan:
        folders: dict[ModelId, Path] = {}
        duplicates = set()
        for name, paths in found.items():
            if self._has_namespacing:
                folders.update({ModelId(str(path.parent), name): path for path in paths})
            elif len(paths) > 1:
                duplicates.add(name)
            else:
                folders[ModelId("", name)] = paths[0]
        return Scan(folders, frozenset(duplicates))
