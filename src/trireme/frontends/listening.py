"""Where a service listens: a socket for every address that its name stands for, and whoever accepts clients there."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trireme.core.errors import UnavailableError
from trireme.frontends.accepting import Accepting, AcceptingSocket, ProtocolFactory
from trireme.frontends.acceptor import Acceptor, LocalClients

log = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_PORT_ATTEMPTS: Final = 16
"""How many ports that the system chose for one address are tried on the others."""
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

Address = tuple[int, Any]
"""A family and what its sockets are bound to."""


@dataclass(frozen=True, slots=True)
class ListeningPlace:
    """Where a service is to be found."""

    address: str
    """A name, an address, or empty for all IPv4 addresses."""
    port: int
    """0 where the system chooses."""
    is_shared: bool
    """Whether others may listen there, too."""


class ListeningSockets:
    """Implements `AcceptingSocket` for all addresses of a service."""

    def __init__(self, parts: Sequence[AcceptingSocket | asyncio.Server]) -> None:
        self._parts = parts
        self.port = int(parts[0].sockets[0].getsockname()[1])
        """The one that all of them listen on."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening ones."""
        return tuple(listening for part in self._parts for listening in part.sockets)

    def close(self) -> None:
        """Accepts no further client."""
        for part in self._parts:
            part.close()


async def listen(
    service: int,
    place: ListeningPlace,
    connect: ProtocolFactory,
    context: ssl.SSLContext | None,
    accepting: Accepting | None,
) -> ListeningSockets:
    """Accepts clients of a service (`HTTP_SERVICE`, `GRPC_SERVICE`) from now on, on all addresses or, where it raises,
    on none; raises UnavailableError."""
    loop = asyncio.get_running_loop()
    parts: list[AcceptingSocket | asyncio.Server] = []
    bound = bind_sockets(place)
    try:
        for listening in bound:
            if accepting is not None:
                parts.append(accepting.accept(service, listening, connect, context))
            elif context is not None:
                parts.append(Acceptor(listening, LocalClients(connect, context).take))
            else:
                parts.append(await loop.create_server(connect, sock=listening, backlog=_BACKLOG))
    except BaseException:
        for part in parts:
            part.close()
        for listening in bound[len(parts) :]:
            listening.close()
        raise
    return ListeningSockets(parts)


def bind_sockets(place: ListeningPlace) -> list[socket.socket]:
    """A listening socket for each address of the place, all on one port; raises UnavailableError. Addresses of a name
    that this machine does not have are left out where it has others."""
    addresses = _look_up(place)
    for _ in range(_PORT_ATTEMPTS):
        bound: list[socket.socket] = []
        try:
            _bind_all(addresses, place, bound)
            return bound
        except OSError as error:
            for listening in bound:
                listening.close()
            if error.errno == errno.EADDRINUSE and place.port == 0 and bound:
                continue
            if error.errno == errno.EADDRINUSE:
                raise UnavailableError(f"Socket '{place.address}:{place.port}' already in use ") from None
            reason = error.strerror
            raise UnavailableError(f"Socket '{place.address}:{place.port}' can not be opened: {reason}") from None
    raise UnavailableError(f"Socket '{place.address}:0' can not be opened: no port is free on all of its addresses")


def _look_up(place: ListeningPlace) -> list[Address]:
    try:
        found = socket.getaddrinfo(
            place.address or "0.0.0.0", place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise UnavailableError(f"Socket '{place.address}:{place.port}' can not be opened: {error}") from None
    return list(dict.fromkeys((int(family), where) for family, _, _, _, where in found))


def _bind_all(addresses: Sequence[Address], place: ListeningPlace, bound: list[socket.socket]) -> None:
    """Adds a socket for each address to those that are bound; raises OSError where one is taken, or none is here."""
    absent: OSError | None = None
    for family, where in addresses:
        port = bound[0].getsockname()[1] if bound else place.port
        try:
            bound.append(_bind(family, (where[0], port, *where[2:]), place.is_shared, len(addresses) > 1))
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            absent = error
            if len(addresses) > 1:
                log.warning("'%s' is %s, which this machine does not have: not served there", place.address, where[0])
    if absent is not None and not bound:
        raise absent


def _bind(family: int, where: Any, is_shared: bool, is_one_of_several: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and is_one_of_several:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(where)
        # Listening here rather than in the event loop, so that a port that is taken shows at once.
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening
