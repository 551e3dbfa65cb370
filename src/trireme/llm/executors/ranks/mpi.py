"""Ranks under mpirun: its first process is the server, and each other one keeps a place where ranks are asked for.

The places are sockets in a folder of the user's own, so all processes have to be on one machine.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Mapping
from pathlib import Path

FOLDER_VARIABLE = "TRIREME_RANK_FOLDER"
"""Where the places are; the server sets it for its workers."""
COUNT_VARIABLE = "TRIREME_RANK_COUNT"
"""How many processes mpirun has started."""
_CONNECT_S = 60.0
_PAUSE_S = 0.05


def mpi_process_count(environ: Mapping[str, str]) -> int:
    """How many processes mpirun has started, where the server's workers can ask them for ranks; else 1."""
    count = environ.get(COUNT_VARIABLE, "")
    return int(count) if environ.get(FOLDER_VARIABLE) and count.isdecimal() else 1


def hosted_ranks(environ: Mapping[str, str]) -> range:
    """The ranks that processes of mpirun keep a place for; none without mpirun."""
    return range(1, mpi_process_count(environ))


def place_of(folder: Path, rank: int) -> Path:
    """The socket of one rank."""
    return folder / f"rank-{rank}"


def connect_to_host(environ: Mapping[str, str], rank: int, timeout_s: float = _CONNECT_S) -> socket.socket:
    """A connection to a process of mpirun, which starts a rank at the other end; raises OSError after some time."""
    return connect(place_of(Path(environ[FOLDER_VARIABLE]), rank), timeout_s)


def connect(place: Path, timeout_s: float = _CONNECT_S) -> socket.socket:
    """Waits for the place to come to be."""
    end = time.monotonic() + timeout_s
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(str(place))
        except OSError as error:
            link.close()
            is_coming = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            if not is_coming or time.monotonic() > end:
                raise OSError(
                    f"a process of mpirun is not to be found at {place} ({error.strerror}); all of them have to be "
                    "on one machine, and of one user"
                ) from None
            time.sleep(_PAUSE_S)
        else:
            return link
