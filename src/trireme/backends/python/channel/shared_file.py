"""Files in memory that two processes map, and the seal without which one of them could crash the other."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache

# The kernel's numbers: Python knows these names only where it was built against a recent C library.
MFD_CLOEXEC = 0x1
MFD_ALLOW_SEALING = 0x2
F_ADD_SEALS = 1033
F_GET_SEALS = 1034
F_SEAL_SEAL = 0x1
F_SEAL_SHRINK = 0x2


def create(size: int) -> int:
    """A descriptor of a file of this size without a name. Where the system can, it is sealed: whoever has it mapped
    would get SIGBUS from a page behind its end, so nobody may cut it short."""
    fd = _memory_file()
    if fd is None:
        fd = _temporary_file()
    try:
        os.ftruncate(fd, size)
        _seal(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def is_safe(fd: int) -> bool:
    """Whether nobody can cut the file short; also true where the system has no such seals."""
    return _has_seal(fd) or not _can_seal()


@cache
def _can_seal() -> bool:
    try:
        fd = create(1)
    except OSError:
        return False
    try:
        return _has_seal(fd)
    finally:
        os.close(fd)


def _has_seal(fd: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        return bool(fcntl.fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)
    except OSError:  # a kind of file that has no seals
        return False


def _seal(fd: int) -> None:
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # a kind of file that has no seals
            fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL)


def _memory_file() -> int | None:
    """None where the system has no such files."""
    flags = MFD_CLOEXEC | MFD_ALLOW_SEALING
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            return os.memfd_create("trireme", flags)
    elif sys.platform == "linux":
        import ctypes

        library = ctypes.CDLL(None)
        if hasattr(library, "memfd_create"):
            fd = int(library.memfd_create(b"trireme", flags))
            return fd if fd >= 0 else None
    return None


def _temporary_file() -> int:
    import tempfile

    fd, path = tempfile.mkstemp(prefix="trireme-")
    os.unlink(path)
    return fd
