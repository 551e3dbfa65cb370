"""Files that others have put there: what is none, such as a pipe, would be waited for without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most_bytes: int | None = None) -> bytes:
    """The whole content. Raises OSError, also where it is neither a file nor a link to one, before it is opened, and
    where it has more bytes than somebody would write who meant this file."""
    check_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)  # it may be another one since
        _check(found.st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as file:
        if most_bytes is None:
            return file.read()
        content = file.read(most_bytes + 1) if found.st_size <= most_bytes else b""  # some tell no size, or grow
        if max(found.st_size, len(content)) > most_bytes:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes >> 20} MiB", str(path))
        return content


def check_regular(path: Path) -> None:
    """Raises OSError, also where it is neither a file nor a link to one."""
    _check(path.stat().st_mode, path)


def is_odd(path: Path | str) -> bool:
    """Whether there is something that is neither a file nor a folder, nor a link to one: nothing that a model is in."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _check(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
