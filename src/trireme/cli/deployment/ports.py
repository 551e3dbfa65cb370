"""Whether the server will be able to listen, asked before a model is fetched and loaded."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from trireme.config.options.server import ServerOptions
from trireme.tools.deploy.options import DeployError

_STEP = 10
"""Between ports that are tried where one is taken: all of a server's ports move together."""
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class _Door:
    """Where one of the server's services listens."""

    flag: str
    address: str
    port: int
    is_shared: bool = False

    @property
    def place(self) -> str:
        return f"{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"


def check_ports(options: ServerOptions) -> None:
    """Raises DeployError where a port is taken or cannot be listened on."""
    taken = []
    for door in _doors(options):
        number = _refusal(door)
        if number == errno.EADDRINUSE:
            taken.append(door)
        elif number is not None:
            hint = "; ports below 1024 are for administrators" if number == errno.EACCES else ""
            raise DeployError(f"the server cannot listen on {door.place} (--{door.flag}): {os.strerror(number)}{hint}")
    if taken:
        raise DeployError(_told(taken, _advice(taken)))


def _doors(options: ServerOptions) -> Iterator[_Door]:
    if options.allow_http:
        yield _Door("http-port", options.http_address, options.http_port, options.reuse_http_port)
    if options.allow_grpc:
        yield _Door("grpc-port", options.grpc_address, options.grpc_port, options.reuse_grpc_port)
    if options.allow_metrics:
        yield _Door("metrics-port", options.effective_metrics_address, options.metrics_port)


def _refusal(door: _Door) -> int | None:
    """Why nobody can listen there now, as an error number; None where it works, or where only the server can tell."""
    try:
        found = socket.getaddrinfo(door.address, door.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return errno.EADDRNOTAVAIL
    family, _, _, _, where = found[0]
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if door.is_shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind(where)
            listening.listen()
        except OSError as error:
            return error.errno
    return None


def _told(taken: list[_Door], advice: str) -> str:
    places = ", ".join(f"{door.place} (--{door.flag})" for door in taken)
    verb = "is" if len(taken) == 1 else "are"
    return f"{places} {verb} taken: another program, maybe another server, listens there. End it, or say\n  {advice}"


def _advice(taken: list[_Door]) -> str:
    """Flags with ports that are free now."""
    for step in range(_STEP, _LAST_PORT, _STEP):
        moved = [_Door(door.flag, door.address, door.port + step) for door in taken]
        if all(door.port <= _LAST_PORT and _refusal(door) is None for door in moved):
            return " ".join(f"--{door.flag} {door.port}" for door in moved)
    return "other ports"
