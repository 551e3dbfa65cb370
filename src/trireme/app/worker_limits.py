"""The limits of workers that the server's options ask for, checked before any model is loaded."""

from __future__ import annotations

import logging
import os
import pwd
import stat
import sys
from pathlib import Path

import trireme
from trireme.backends.worker_limits import WorkerLimits, WorkerUser
from trireme.config.options.server import ServerOptions
from trireme.core.errors import InvalidArgumentError, UnsupportedError

log = logging.getLogger(__name__)


def worker_limits(options: ServerOptions) -> WorkerLimits:
    """Raises ServingError where this system, or this user, cannot have them."""
    if sys.platform != "linux" and not options.worker_network:
        raise UnsupportedError("--worker-network=false works on Linux only")
    user = None
    if options.worker_user is not None:
        user = _find_user(options.worker_user)
        if os.geteuid() not in (0, user.uid):
            raise InvalidArgumentError(
                f"--worker-user={options.worker_user}: only a server that runs as root can run its workers as another "
                "user; start it as root, or leave the option out"
            )
        for path in unreadable_paths(user):
            log.warning("workers run as '%s', who cannot read '%s'; imports of models may fail", user.name, path)
    return WorkerLimits(options.worker_memory_limit, options.worker_open_files, user, options.worker_network)


def unreadable_paths(user: WorkerUser) -> list[Path]:
    """What every worker reads and this user cannot."""
    needed = (Path(sys.executable).resolve(), Path(os.__file__).resolve(), Path(trireme.__file__).resolve())
    found = (
        next((part for part in (*reversed(path.parents), path) if not _can_read(user, part)), None) for path in needed
    )
    return sorted({path for path in found if path is not None})


def _find_user(name: str) -> WorkerUser:
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        raise InvalidArgumentError(
            f"--worker-user={name}: there is no such user on this machine; name one of /etc/passwd, such as nobody"
        ) from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return WorkerUser(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def _can_read(user: WorkerUser, path: Path) -> bool:
    """By the mode alone: enough for a warning."""
    try:
        status = path.stat()
    except OSError:
        return True
    if user.uid == 0:
        return True
    shift = 6 if status.st_uid == user.uid else 3 if status.st_gid in (user.gid, *user.groups) else 0
    wanted = 0o1 if stat.S_ISDIR(status.st_mode) else 0o4
    return bool(status.st_mode >> shift & wanted)
