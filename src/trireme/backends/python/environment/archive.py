"""Unpacking of an archive that nobody vouches for: nothing is written, and no link points, outside its folder."""

from __future__ import annotations

import shutil
import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from trireme.core.errors import InvalidArgumentError, UnsupportedError

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".zip")
MAX_MEMBERS = 2_000_000
MAX_GROWTH = 100
"""Unpacked size over packed size; environments grow three- to fivefold, bombs a thousandfold."""
SMALL_BYTES = 1 << 30
"""Archives that unpack to less than this may grow by any factor."""


def is_archive(path: Path) -> bool:
    return path.name.endswith(ARCHIVE_SUFFIXES)


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks into the folder; blocking. Raises ServingError for a member that would escape, for one that is neither
    file, folder nor link, and for an archive that grows out of proportion or cannot be read."""
    try:
        if archive.name.endswith(".zip"):
            _unpack_zip(archive, folder)
        elif is_archive(archive):
            _unpack_tar(archive, folder)
        else:
            known = ", ".join(ARCHIVE_SUFFIXES)
            raise UnsupportedError(f"'{archive}' is none of the archives that can be unpacked ({known})")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise InvalidArgumentError(f"unable to unpack '{archive}': {error}") from error


def _unpack_tar(archive: Path, folder: Path) -> None:
    budget = _Budget(archive, folder)
    links: set[PurePosixPath] = set()
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = _checked_path(archive, member.name, links)
            if path is None:
                continue
            budget.spend(member.size)
            if member.issym() or member.islnk():
                base = path.parent if member.issym() else PurePosixPath()
                _check_link(archive, member.name, base, member.linkname)
                if member.issym():
                    links.add(path)
            elif not (member.isfile() or member.isdir()):
                raise InvalidArgumentError(f"'{archive}' holds '{member.name}', which is no file, folder or link")
            _extract(tar, member, folder)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        tar.extract(member, folder, filter="data")
    else:
        member.mode &= 0o755
        tar.extract(member, folder, set_attrs=True)


def _unpack_zip(archive: Path, folder: Path) -> None:
    budget = _Budget(archive, folder)
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            path = _checked_path(archive, member.filename, set())
            if path is None:
                continue
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise InvalidArgumentError(f"'{archive}' holds '{member.filename}', which is no file or folder")
            budget.spend(member.file_size)
            target = packed.extract(member, folder)
            if mode & 0o111 and not member.is_dir():
                Path(target).chmod(0o755)


def _checked_path(archive: Path, name: str, links: set[PurePosixPath]) -> PurePosixPath | None:
    """The member's path inside the folder; None for the folder itself."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise InvalidArgumentError(f"'{archive}' holds '{name}', which lies outside the folder it is unpacked into")
    if any(parent in links for parent in path.parents):
        raise InvalidArgumentError(f"'{archive}' holds '{name}', whose folder is a link")
    return None if path == PurePosixPath() else path


def _check_link(archive: Path, name: str, base: PurePosixPath, target: str) -> None:
    """A target may climb at its start only, and not above the folder; then no chain of links leads out either."""
    path = PurePosixPath(target)
    climbs = 0
    while climbs < len(path.parts) and path.parts[climbs] == "..":
        climbs += 1
    if path.is_absolute() or climbs > len(base.parts) or ".." in path.parts[climbs:]:
        raise InvalidArgumentError(f"'{archive}' holds the link '{name}' to '{target}', which leads outside")


class _Budget:
    """What an archive may still take."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self._archive = archive
        self._bytes = min(max(SMALL_BYTES, archive.stat().st_size * MAX_GROWTH), shutil.disk_usage(folder).free)
        self._members = MAX_MEMBERS

    def spend(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._members -= 1
        if self._bytes < 0 or self._members < 0:
            raise InvalidArgumentError(
                f"'{self._archive}' unpacks to more than the disk holds or than its size ({MAX_GROWTH} times) explains"
            )
