"""A listening socket whose clients are accepted here, and handed to whoever holds them from then on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from trireme.frontends.accepting import CountedConnection, ProtocolFactory
from trireme.frontends.handshakes import Handshakes

log = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""How long nobody is accepted where clients cannot be."""
ACCEPTS: Final = 64
"""How many clients are accepted in one turn of the loop."""

Take = Callable[[socket.socket, Any], bool]
"""Gets a client and its address; false, and nothing is done, where nobody can have it now."""


def _always() -> int:
    return ACCEPTS


class Acceptor:
    """Implements `AcceptingSocket`. Accepts from the beginning; used on the event loop's thread. `most_at_once` says
    how many would be taken in one turn of the loop; the others, all where that is 0, stay in the system's queue."""

    def __init__(self, listening: socket.socket, take: Take, most_at_once: Callable[[], int] = _always) -> None:
        self.sockets = (listening,)
        self._take = take
        self._most_at_once = most_at_once
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._held: tuple[socket.socket, Any] | None = None  # a client that nobody has taken yet, and its address
        listening.setblocking(False)
        self.go_on()

    def go_on(self) -> None:
        """Accepts again, now that there may be somebody who takes clients."""
        if not self._is_closed:
            self._loop.add_reader(self.sockets[0].fileno(), self._on_client)
            if self._held is not None:
                self._loop.call_soon(self._on_client)

    def close(self) -> None:
        """Accepts no further client."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self.sockets[0].fileno())
            self.sockets[0].close()
            if self._held is not None:
                self._held[0].close()
                self._held = None

    def _on_client(self) -> None:
        taken_count = 0
        while not self._is_closed:
            most = self._most_at_once()
            if not most:
                self._pause()
            if taken_count >= most:
                return
            taken_count += 1
            try:
                client, peer = self._held or self.sockets[0].accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("a client could not be accepted: %s", error)
                self._pause()
                return
            self._held = None
            if not self._take(client, peer):
                self._held = client, peer
                self._pause()
                return

    def _pause(self) -> None:
        """Leaves further clients in the system's queue for a moment."""
        self._loop.remove_reader(self.sockets[0].fileno())
        self._loop.call_later(_AGAIN_S, self.go_on)


class LocalClients:
    """Has clients in this process. One whose TLS handshake fails is lost like any other: the event loop's own servers
    do not tell the protocol, which would count it for ever."""

    def __init__(self, connect: ProtocolFactory, context: ssl.SSLContext | None) -> None:
        self._connect = connect
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._handshakes = Handshakes()

    def take(self, client: socket.socket, peer: Any) -> bool:
        """Implements `Take`."""
        protocol = self._connect()
        if not cast(CountedConnection, protocol).claim(peer):
            client.close()
            protocol.connection_lost(None)
            return True
        task = self._loop.create_task(self._connect_client(client, protocol))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return True

    async def _connect_client(self, client: socket.socket, protocol: asyncio.Protocol) -> None:
        client.setblocking(False)
        try:
            await self._handshakes.connect(protocol, client, self._context)
        except OSError as error:
            client.close()
            protocol.connection_lost(error)
