"""The loop of a front-end process in this one, with a test in the server's place and real sockets of clients."""

from __future__ import annotations

import asyncio
import marshal
import socket
from collections.abc import Callable
from typing import Any

from trireme.app.front_ends import _front_plan
from trireme.config.options.server import ServerOptions
from trireme.frontends.processes import messages
from trireme.frontends.processes.front_loop import FrontLoop
from trireme.frontends.processes.process_link import ProcessLink


class FrontLoopStage:
    """Used on the event loop's thread."""

    def __init__(self, options: ServerOptions | None = None) -> None:
        plan = _front_plan(options or ServerOptions(), asyncio.new_event_loop, (700, 10, 10))
        ours, theirs = socket.socketpair()
        self._side, self._their_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.taken: list[tuple[Any, ...]] = []
        """What the front end has told."""
        self.link = ProcessLink(asyncio.get_running_loop(), ours, self.taken.append, lambda: None)
        self.front = FrontLoop(plan, theirs, self._their_side)
        self._clients: list[socket.socket] = []

    async def close(self) -> None:
        for connection in list(self.front.connections.values()):
            connection.told(messages.ABORT, b"")
        await until(lambda: not self.front.connections)
        self.front.close()
        for end in (self.link, self.front.link, self._side, self._their_side, *self._clients):
            end.close()

    def connect(self, number: int, service: int) -> socket.socket:
        """A client, whose other end the front end has from now on."""
        client, theirs = socket.socketpair()
        client.setblocking(False)
        self._clients.append(client)
        with theirs:
            socket.send_fds(self._side, [marshal.dumps((number, service))], [theirs.fileno()])
        self.link.send((messages.OPEN, number, service, True))
        return client

    def send_without_socket(self, number: int, service: int) -> None:
        """What comes of a client where the system leaves its socket out."""
        self._side.send(marshal.dumps((number, service)))
        self.link.send((messages.OPEN, number, service, True))

    async def told(self, kind: int) -> tuple[Any, ...]:
        """The next message of this kind; those before it are forgotten."""
        await until(lambda: any(message[0] == kind for message in self.taken))
        while (message := self.taken.pop(0))[0] != kind:
            pass
        return message


async def read_all(client: socket.socket) -> bytes:
    """All that comes until the front end closes."""
    received = b""
    async with asyncio.timeout(20):
        while data := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
            received += data
    return received


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the link tells nobody
            await asyncio.sleep(0.001)
