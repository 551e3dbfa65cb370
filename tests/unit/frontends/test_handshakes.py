"""Clients that begin a TLS handshake and do not go on with it."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from trireme.frontends import handshakes
from trireme.frontends.handshakes import Handshakes


async def connect(found: Handshakes) -> tuple[socket.socket, asyncio.Task[None]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    task = asyncio.get_running_loop().create_task(found.connect(asyncio.Protocol(), ours, context))
    await asyncio.sleep(0)
    return theirs, task


async def ends(tasks: list[asyncio.Task[None]]) -> list[bool]:
    """Which of them have ended because they took too long."""
    await asyncio.wait(tasks, timeout=0.5)
    return [task.done() and isinstance(task.exception(), TimeoutError) for task in tasks]


@pytest.mark.parametrize("count", [3, 5])
def test_many_that_are_silent_are_ended_soon_and_a_few_later(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MANY", 4)
    monkeypatch.setattr(handshakes, "_SHORT_S", 0.05)
    monkeypatch.setattr(handshakes, "_LONG_S", 60.0)

    async def run() -> None:
        found = Handshakes()
        connected = [await connect(found) for _ in range(count)]
        tasks = [task for _, task in connected]
        assert await ends(tasks) == [count > 4] * count
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert not found._under_way
        for theirs, _ in connected:
            theirs.settimeout(20)
            assert theirs.recv(1) == b"", "the descriptor is closed"
            theirs.close()

    asyncio.run(run())
