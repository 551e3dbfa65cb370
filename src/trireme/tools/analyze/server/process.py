"""The process of a server that runs already, where it is on this machine and may be looked at."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
_SERVERS = ("tritonserver", "trireme")
"""Words of a server's command line: who listens in its place, a tunnel or a container's proxy, is not the server."""


def server_process(host: str, port: int) -> int | None:
    """The process that listens at this address, its children aside; None where it is elsewhere, or not to be seen."""
    if not _is_this_machine(host, port):
        return None
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    holders = {one for one in _processes() if sockets and _holds(one, sockets)}
    first = [one for one in holders if _parent(one) not in holders]
    return first[0] if len(first) == 1 and _is_server(first[0]) else None


def listening_ports(process_id: int) -> list[int]:
    """Every port at which the process itself listens."""
    held = set(_held(process_id))
    return sorted({port for port, inode in _sockets() if f"socket:[{inode}]" in held})


def _is_this_machine(host: str, port: int) -> bool:
    """An address that can be bound is one of ours."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as bound:
                bound.bind((address[0], 0))
        except OSError:
            continue
        return True
    return False


def _listening(port: int) -> Iterator[str]:
    """The inodes of sockets that listen at a port."""
    yield from (inode for found, inode in _sockets() if found == port)


def _sockets() -> Iterator[tuple[int, str]]:
    """The port and the inode of every socket that listens."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTENING:
                yield int(words[1].rpartition(":")[2], 16), words[9]


def _processes() -> Iterator[int]:
    yield from (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def _holds(process_id: int, sockets: set[str]) -> bool:
    return any(link in sockets for link in _held(process_id))


def _held(process_id: int) -> Iterator[str]:
    """What the process has opened."""
    try:
        opened = list(Path(f"/proc/{process_id}/fd").iterdir())
    except OSError:  # another user's, or gone
        return
    for path in opened:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield str(path.readlink())


def _parent(process_id: int) -> int:
    try:
        return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_server(process_id: int) -> bool:
    try:
        words = Path(f"/proc/{process_id}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(name in words for name in _SERVERS)
