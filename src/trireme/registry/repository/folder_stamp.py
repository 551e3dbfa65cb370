"""What a model folder looked like when it was loaded, so that a later look can tell whether it changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BYTECODE = "__pycache__"
_CONFIG, _CONTENT = "config", "content"


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of a folder's entries."""

    files: frozenset[tuple[str, int, int]]
    """Path, time and size of every file; a folder stands here with its path alone."""
    folder_times: Mapping[str, int]
    """Folders whose time says something: Python writing bytecode into a folder changes its time, too."""

    def is_same_as(self, other: _Part) -> bool:
        common = self.folder_times.keys() & other.folder_times.keys()
        return self.files == other.files and all(self.folder_times[path] == other.folder_times[path] for path in common)


@dataclass(frozen=True, slots=True)
class FolderStamp:
    """Times, sizes and names of everything in a model folder, in parts that change for different reasons."""

    config: _Part
    """`config.pbtxt`, the files of `configs/`, and the folder itself."""
    versions: Mapping[int, _Part]
    """What the folder of each version holds."""
    content: _Part
    """Everything else, which all versions may use."""

    @classmethod
    def of(cls, folder: Path) -> FolderStamp:
        """Reads the tree; raises OSError where the folder is gone or may not be read."""
        files: dict[str, set[tuple[str, int, int]]] = {_CONFIG: set(), _CONTENT: set()}
        times: dict[str, dict[str, int]] = {_CONFIG: {}, _CONTENT: {}}
        for path, is_folder, mtime_ns, size in tree_entries(str(folder)):
            part = _part_of(path)
            files.setdefault(part, set()).add((path, 0, 0) if is_folder else (path, mtime_ns, size))
            if is_folder and mtime_ns:
                times.setdefault(part, {})[path] = mtime_ns
        parts = {name: _Part(frozenset(entries), times.get(name, {})) for name, entries in files.items()}
        versions = {int(name): part for name, part in parts.items() if name.isdecimal()}
        return cls(parts[_CONFIG], versions, parts[_CONTENT])

    def is_same_as(self, other: FolderStamp) -> bool:
        """Whether nothing changed between the two looks."""
        is_same = self.config.is_same_as(other.config) and self.content.is_same_as(other.content)
        has_same_versions = self.versions.keys() == other.versions.keys()
        return is_same and has_same_versions and all(self.has_same_version(other, version) for version in self.versions)

    def has_same_version(self, other: FolderStamp, version: int) -> bool:
        """Whether the folder of this version, which both have, did not change between the two looks."""
        ours, theirs = self.versions.get(version), other.versions.get(version)
        return ours is not None and theirs is not None and ours.is_same_as(theirs)


def _part_of(path: str) -> str:
    """The name of the part that a path below the folder belongs to: of a version's, its number as it is written."""
    top = path.partition(os.sep)[0]
    if path in {"", "config.pbtxt"} or top == "configs":
        return _CONFIG
    return top if top.isdecimal() and str(int(top)) == top else _CONTENT


def tree_entries(folder: str) -> Iterator[tuple[str, bool, int, int]]:
    """Path below the folder, whether it is a folder, time (0 where it says nothing) and size of every entry but
    Python's bytecode."""
    start = len(folder) + 1
    pending, seen = [folder], set()
    while pending:
        path = pending.pop()
        try:
            status = os.stat(path)
        except OSError:
            if path == folder:
                raise
            continue  # went while its parent was read, or may not be looked at
        if (status.st_dev, status.st_ino) in seen:  # links may lead in circles
            continue
        seen.add((status.st_dev, status.st_ino))
        has_bytecode = False
        for entry in _listing(path, is_required=path == folder):
            if entry.name == _BYTECODE:
                has_bytecode = True
            elif _is_folder(entry):
                pending.append(entry.path)
            else:
                yield (entry.path[start:], False, *_file_state(entry))
        yield path[start:], True, 0 if has_bytecode else status.st_mtime_ns, 0


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to where nobody may look
        return False


def _listing(path: str, is_required: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        if is_required:
            raise
        return []


def _file_state(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        status = entry.stat()
    except OSError:  # a dangling link, or a file that went while the folder was read
        return 0, 0
    return status.st_mtime_ns, status.st_size
