"""The model repositories on disk: which folders are models, and which names are ambiguous."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trireme.core.errors import AlreadyExistsError, InvalidArgumentError

log = logging.getLogger(__name__)

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
        self._registered: Mapping[Path, Mapping[str, str]] = {}
        """Further ones, with the names of models that are not those of their folders, by folder. Replaced as a whole:
        others read it in threads of their own."""
        self._told: set[Path] = set()

    def register(self, path: Path, names: Mapping[str, str]) -> None:
        """One more repository; `names` are those of models, by folder, that are not their folders'. A folder of such a
        name elsewhere is no model meanwhile, and one of any other name is in one of such repositories alone. Reads the
        disk; raises AlreadyExistsError."""
        taken = {name for mapping in self._registered.values() for name in mapping.values()}
        if path in self._registered or path in self._paths:
            raise AlreadyExistsError(f"model repository '{path}' has already been registered")
        for name in names.values():
            if name in taken:
                raise AlreadyExistsError(f"model name '{name}' is that of a model in another repository")
        others = {name for known, mapping in self._registered.items() for name in _own_names(known, mapping)}
        if shared := sorted(others & _own_names(path, names)):
            raise AlreadyExistsError(f"model '{shared[0]}' of '{path}' is in another repository as well")
        self._registered = {**self._registered, path: dict(names)}

    def unregister(self, path: Path) -> None:
        """Without the repository, where it was registered; its models stay as they are."""
        self._registered = {known: names for known, names in self._registered.items() if known != path}

    def check(self) -> None:
        """Raises InvalidArgumentError where a repository is not a folder, or cannot be read. Reads the disk."""
        for path in self._paths:
            if not os.path.isdir(path):
                raise InvalidArgumentError(f"repository path is not a valid directory: {path}")
            try:
                os.scandir(path).close()
            except OSError as error:
                raise InvalidArgumentError(f"repository path cannot be read: {path}: {error.strerror}") from None

    def scan(self) -> Scan:
        """Every model folder. A repository that cannot be read raises OSError: taking it for an empty one would
        unload its models."""
        found: dict[str, list[Path]] = {}
        registered = self._registered
        given = {name for names in registered.values() for name in names.values()}
        for path, names in self._all(registered):
            if path in registered and not os.path.isdir(path):
                continue  # who had it registered has removed it
            with os.scandir(path) as entries:
                for entry in entries:
                    # `.git` and the like are no models, although they are folders.
                    if not entry.name.startswith(".") and self._is_model(path / entry.name, entry):
                        name = names.get(entry.name, entry.name)
                        if name not in given or entry.name in names:
                            found.setdefault(name, []).append(path / entry.name)
        return self._resolve(found)

    def locate(self, name: str) -> Scan:
        """The same for the folders of one name."""
        repositories = self._all(self._registered)
        renamed = [path / folder for path, names in repositories for folder, given in names.items() if given == name]
        wanted = renamed or [path / name for path, names in repositories if name not in names]
        folders = [folder for folder in wanted if may_be_folder(folder) and self._is_text(folder)]
        return self._resolve({name: folders} if folders else {})

    def _is_model(self, folder: Path, entry: os.DirEntry[str]) -> bool:
        """Whether the entry may be one; told once where it is a link to nothing."""
        if may_be_folder(entry):
            return self._is_text(folder)
        if entry.is_symlink() and folder not in self._told and not os.path.exists(folder):
            self._told.add(folder)
            log.warning("The link %a is no model: what it leads to is not there", os.fspath(folder))
        return False

    def _is_text(self, folder: Path) -> bool:
        """Whether the folder's name can be that of a model, which clients see; told once where it cannot."""
        try:
            folder.name.encode()
        except UnicodeEncodeError:
            if folder not in self._told:
                self._told.add(folder)
                log.error("The folder %a is no model: its name is not UTF-8; rename it", os.fsencode(folder))
            return False
        return True

    def _all(self, registered: Mapping[Path, Mapping[str, str]]) -> list[tuple[Path, Mapping[str, str]]]:
        return [*((path, {}) for path in self._paths), *registered.items()]

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


def may_be_folder(place: Path | os.DirEntry[str]) -> bool:
    """Whether it is one, or may be: of what cannot be looked at, such as a link to itself, or to a share that is away,
    whoever reads it is told why, and what is served from it stays."""
    try:
        return stat.S_ISDIR(place.stat().st_mode) if isinstance(place, Path) else place.is_dir()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


def _own_names(path: Path, names: Mapping[str, str]) -> set[str]:
    """The folders of a repository that go by their own names."""
    try:
        return {
            entry.name for entry in path.iterdir() if may_be_folder(entry) and not entry.name.startswith(".")
        } - names.keys()
    except OSError:
        return set()
