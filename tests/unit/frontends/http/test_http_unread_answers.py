"""Clients that leave a little of their answers unread, too little for the transport to say so: sockets are real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from time import monotonic

import pytest
import uvloop
from waiting import until_on_loop

from trireme.frontends.connection_slots import ConnectionSlots, SharedLimits
from trireme.frontends.http.connection import Connection
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, HeadReader, RequestHead
from trireme.frontends.http.listener import Listener
from trireme.frontends.http.options import ConnectionLimits

SIZE_BYTES = 900_000
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Story = Callable[[Listener, Connection, socket.socket], Awaitable[None]]


def answer(exchange: Exchange) -> None:
    exchange.send(bytes(SIZE_BYTES))


def resolve(head: RequestHead) -> None:
    head.endpoint = Endpoint("health", answer)


def tell(story: Story) -> None:
    """Lets the story happen to one connection whose socket holds little."""

    async def run() -> None:
        listener = Listener(HeadReader(resolve), ConnectionLimits(), shared=SharedLimits(ConnectionSlots(9)))
        theirs, ours = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = listener._connect()
        with theirs:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, ours)
            await asyncio.get_running_loop().sock_sendall(theirs, ASK)
            await until_on_loop(lambda: connection.is_sending)
            await story(listener, connection, theirs)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("is_closing", [False, True])
def test_what_stays_unread_counts_and_is_given_up_in_the_end(is_closing: bool) -> None:
    async def story(listener: Listener, connection: Connection, client: socket.socket) -> None:
        if is_closing:
            connection.close()
        now_s = monotonic()
        connection.check_progress(now_s)
        assert SIZE_BYTES > listener.inflight.used_bytes > SIZE_BYTES // 2
        connection.check_progress(now_s + 59)
        assert listener.slots.count == 1
        connection.check_progress(now_s + 61)
        await until_on_loop(lambda: not listener.slots.count)
        assert not listener.connections
        assert not listener.inflight.used_bytes

    tell(story)


def test_who_reads_after_all_is_served_on() -> None:
    async def story(listener: Listener, connection: Connection, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.check_progress(monotonic())
        for _ in range(2):
            left = SIZE_BYTES
            while left:
                left -= len(await loop.sock_recv(client, left))
            await until_on_loop(lambda: not listener.inflight.used_bytes)
            connection.check_progress(monotonic() + 61)
            await loop.sock_sendall(client, ASK)
        assert listener.slots.count == 1

    tell(story)
