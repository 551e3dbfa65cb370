"""How a listener gets its connections where other processes hold the sockets of clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from trireme.frontends.inflight import ConnectionBytes

ProtocolFactory = Callable[[], asyncio.Protocol]
"""Makes connections, which implement `CountedConnection` as well."""


class CountedConnection(Protocol):
    """A client's connection, as those see it who hold its socket elsewhere."""

    inflight: ConnectionBytes
    """What it holds."""

    def claim(self, peer: object) -> bool:
        """Counts it at its client's address, behind which a handshake may follow; False where that has too many."""

    def note_used(self) -> None:
        """A request came on it, of which it has seen nothing."""


class AcceptingSocket(Protocol):
    """Where clients are accepted until it is closed; used on the event loop's thread."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening ones."""

    def close(self) -> None:
        """Accepts no further client; those that are there stay."""


class Accepting(Protocol):
    """Whoever accepts the clients of a service."""

    def accept(
        self, service: int, listening: socket.socket, connect: ProtocolFactory, context: ssl.SSLContext | None
    ) -> AcceptingSocket:
        """Accepts clients of the socket, which is its own from now on, for a service (`HTTP_SERVICE`,
        `GRPC_SERVICE`); `connect` makes the protocol of each, which sees a transport like any other. `context` is for
        clients whose sockets stay in this process after all."""


HTTP_SERVICE = 0
GRPC_SERVICE = 1
