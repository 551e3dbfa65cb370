"""What the processes of mpirun do beside the server: each keeps a place, and starts ranks for the server's workers.

The first process to come to the place is the server, and the place is kept as long as that is there. Everybody else who
comes is a worker that wants a rank of a model.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from trireme.llm.executors.ranks.mpi import COUNT_VARIABLE, FOLDER_VARIABLE, connect, place_of
from trireme.llm.executors.ranks.program import start_rank

_JOB_VARIABLES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
_FIRST_S = 120.0
"""So long a place waits for the server."""
_END_S = 5.0


def meeting_folder(environ: Mapping[str, str]) -> Path:
    """Where the processes of one mpirun meet: a folder that nobody but the user can look into; raises OSError."""
    job = next((environ[name] for name in _JOB_VARIABLES if environ.get(name)), f"parent {os.getppid()}")
    name = hashlib.sha256(job.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"trireme-ranks-{os.getuid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"{folder} is not this user's alone; delete it")
    return folder


def lead(environ: MutableMapping[str, str], count: int) -> list[socket.socket]:
    """In the server: waits for the places of all others, and tells workers of them by variables.

    The others stay as long as the connections that this returns; raises OSError where one does not come.
    """
    folder = meeting_folder(environ)
    links = [connect(place_of(folder, rank)) for rank in range(1, count)]
    environ[FOLDER_VARIABLE], environ[COUNT_VARIABLE] = str(folder), str(count)
    return links


def keep_place(environ: Mapping[str, str], rank: int) -> int:
    """In another process: until the server has ended; the exit code of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides, and what runs there comes to its end
    place = place_of(meeting_folder(environ), rank)
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(place))
        door.listen()
        door.settimeout(_FIRST_S)
        try:
            server, _ = door.accept()
        except TimeoutError:
            return 1
        finally:
            door.settimeout(None)
        with server:
            ranks = _start_ranks(door, server)
    place.unlink(missing_ok=True)
    for process in ranks:
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return 0


def _start_ranks(door: socket.socket, server: socket.socket) -> list[subprocess.Popen[bytes]]:
    """One for each connection, until the server's is closed."""
    ranks: list[subprocess.Popen[bytes]] = []
    while True:
        ready, _, _ = select.select([door, server], [], [])
        ranks = [process for process in ranks if process.poll() is None]
        if server in ready:
            return ranks
        link, _ = door.accept()
        with link:
            ranks.append(start_rank(link))
