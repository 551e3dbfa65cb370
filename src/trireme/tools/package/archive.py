"""Packs a model repository into a zip file, empty folders included, and unpacks it again."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

_LEFT_OUT = ("__pycache__", ".git")


class PackageError(Exception):
    """A repository that cannot be packed; the text says why and what to do."""


def write_archive(repository: Path, target: Path, check: Callable[[Path], None] | None = None) -> int:
    """Packs the folder under its own name; how many files there are. The file is complete and checked, or not there at
    all: until `check` has returned, it has another name, and it is removed where that raises.

    Weights hardly shrink, so nothing is compressed. Links are followed, as a model folder often links into a cache.
    """
    if not repository.is_dir():
        raise PackageError(f"{repository} is not a folder")
    if target.exists():
        raise PackageError(f"{target} is there already; remove it first, or choose another name")
    if not target.absolute().parent.is_dir():
        raise PackageError(
            f"there is no folder {target.parent} for {target.name}; make it first, or choose another one"
        )
    unfinished = target.with_name(f".{target.name}.unfinished")
    top, count = repository.resolve().name, 0
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
            for path in _entries(repository, unfinished):
                name = _checked_name(Path(top) / path.relative_to(repository))
                archive.write(path, name)  # a folder gets an entry, too
                count += path.is_file()
        if check is not None:
            check(unfinished)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def unpack_archive(archive: Path, folder: Path) -> Path:
    """The repository inside, written into the folder."""
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
        return folder / opened.namelist()[0].partition("/")[0]


def _entries(repository: Path, archive: Path) -> Iterator[Path]:
    """Folders before what they hold, in the order of names."""
    seen: set[Path] = set()
    for root, folders, files in os.walk(repository, onerror=_refuse, followlinks=True):
        real = Path(root).resolve()
        if real in seen and Path(root).is_symlink():
            raise PackageError(f"{root} links back to a folder that holds it; remove the link")
        seen.add(real)
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        yield Path(root)
        for name in sorted(files):
            path = Path(root, name)
            if not path.exists():
                raise PackageError(f"{path} is a link to {os.readlink(path)}, which is not there; download it again")
            if not path.is_file():
                raise PackageError(f"{path} is neither a file nor a folder, nor a link to one; remove it")
            if path.resolve() != archive.resolve():
                yield path


def _refuse(error: OSError) -> None:
    """A folder that may not be read: without it the package would be another one than was meant."""
    raise error


def _checked_name(name: Path) -> Path:
    """Raises PackageError where a zip file cannot have it: names there are text."""
    try:
        str(name).encode()
    except UnicodeEncodeError:
        told = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise PackageError(f"the name of {told} is not UTF-8, which a zip file needs; rename it") from None
    return name
