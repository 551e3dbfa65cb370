"""Whether the server will be able to listen, asked before a model is fetched and loaded."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from trireme.config.options.server import ServerOptions

_STEP = 10
"""Between ports that are tried where one is taken: all of a server's ports move together."""
_LAST_PORT = 65535
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Where one of the server's services listens."""

    flag: str
    address: str
    port: int
    is_shared: bool = False

    @property
    def place(self) -> str:
        return f"{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"


def port_problem(options: ServerOptions) -> str | None:
    """Why the server will not be able to listen, with advice; None where it will."""
    taken = []
    for listener in _listeners(options):
        number = _refusal(listener)
        if number == errno.EADDRINUSE:
            taken.append(listener)
        elif number is not None:
            hint = "; ports below 1024 are for administrators" if number == errno.EACCES else ""
            return f"the server cannot listen on {listener.place} (--{listener.flag}): {os.strerror(number)}{hint}"
    return _told(taken, _advice(taken)) if taken else None


def _listeners(options: ServerOptions) -> Iterator[_Listener]:
    if options.allow_http:
        yield _Listener("http-port", options.http_address, options.http_port, options.reuse_http_port)
    if options.allow_grpc:
        yield _Listener("grpc-port", options.grpc_address, options.grpc_port, options.reuse_grpc_port)
    if options.allow_sagemaker:
        yield _Listener("sagemaker-port", options.http_address, options.sagemaker_port)
    if options.allow_vertex_ai:
        yield _Listener("vertex-ai-port", options.http_address, options.vertex_ai_port)
    if options.allow_metrics:
        yield _Listener("metrics-port", options.effective_metrics_address, options.metrics_port)


def _refusal(listener: _Listener) -> int | None:
    """Why nobody can listen there now, as an error number; None where it works, or where only the server can tell. Of
    a name with several addresses those that this machine does not have are left out, as the server leaves them out."""
    try:
        found = socket.getaddrinfo(listener.address, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return errno.EADDRNOTAVAIL
    places = dict.fromkeys((family, where) for family, _, _, _, where in found)
    numbers = [_bind_error(*place, listener.is_shared, len(places) > 1) for place in places]
    refusals = [number for number in numbers if number is not None]
    decisive = [number for number in refusals if number not in _NOT_HERE]
    return next(iter(decisive or (refusals if len(refusals) == len(places) else [])), None)


def _bind_error(family: int, where: Any, is_shared: bool, is_one_of_several: bool) -> int | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6 and is_one_of_several:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(where)
            if not is_shared:  # whose connections would come here, and be lost
                listening.listen()
    except OSError as error:
        return error.errno
    return None


def _told(taken: list[_Listener], advice: str) -> str:
    places = ", ".join(f"{listener.place} (--{listener.flag})" for listener in taken)
    verb = "is" if len(taken) == 1 else "are"
    return f"{places} {verb} taken: another program, maybe another server, listens there. End it, or say\n  {advice}"


def _advice(taken: list[_Listener]) -> str:
    """Flags with ports that are free now."""
    for step in range(_STEP, _LAST_PORT, _STEP):
        moved = [_Listener(listener.flag, listener.address, listener.port + step) for listener in taken]
        if all(listener.port <= _LAST_PORT and _refusal(listener) is None for listener in moved):
            return " ".join(f"--{listener.flag} {listener.port}" for listener in moved)
    return "other ports"
