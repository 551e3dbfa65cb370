"""Reads files of models: what is none, such as a pipe, would be waited for without end, and a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """The whole content. Raises OSError, also where it is neither a file nor a link to one, before it is opened."""
    check_regular(path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        _check(os.fstat(file.fileno()).st_mode, path)  # it may be another one since
        return file.read()


def check_regular(path: Path) -> None:
    """Raises OSError, also where it is neither a file nor a link to one."""
    _check(path.stat().st_mode, path)


def _check(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
