"""A front-end process's side of leases, with this test in the place of the server process and of the workers."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path

from google.protobuf import text_format

from trireme.app.front_ends import _server_without_models
from trireme.app.leases.lease_holder import LeaseHolder
from trireme.app.leases.shared_counts import SharedCounts
from trireme.config.message import new_config
from trireme.config.options.server import ServerOptions
from trireme.frontends.processes import messages

CONFIG = """
name: "m" backend: "python" max_batch_size: 2 dynamic_batching { }
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""


class Stage:
    """The holder, and the workers that it was given."""

    def __init__(self) -> None:
        message = new_config()
        text_format.Parse(CONFIG, message)
        self._config = message.SerializeToString()
        self.holder = LeaseHolder(_server_without_models(ServerOptions()), lambda message: None)
        self.workers: dict[int, tuple[socket.socket, socket.socket]] = {}

    def lend(self, lease: int, term: int, counts: SharedCounts) -> None:
        pairs = socket.socketpair(), socket.socketpair()
        self.workers[lease] = (pairs[0][0], pairs[1][0])
        descriptors = [pairs[0][1].detach(), pairs[1][1].detach(), os.dup(counts.fd)]
        self.holder.take((messages.LEASE, lease, term, 1, self._config, False, "m_0"), descriptors)

    async def is_sent_back(self, lease: int) -> None:
        """Returns when it is."""
        sock, side = self.workers.pop(lease)
        sock.setblocking(False)
        async with asyncio.timeout(10):
            assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""
        sock.close()
        side.close()


def test_nothing_is_left_open_of_workers_that_went_back() -> None:
    async def go(stage: Stage) -> None:
        before, maps = open_files(), counting_maps()
        for term in range(1, 4):
            counts = SharedCounts.create()
            stage.lend(10 * term, term, counts)
            stage.lend(10 * term + 1, term, counts)
            stage.holder.give_back(10 * term)
            await stage.is_sent_back(10 * term)
            stage.holder.give_back(10 * term + 1)
            await stage.is_sent_back(10 * term + 1)
            counts.close()
        await until(lambda: open_files() == before)
        assert counting_maps() == maps

    asyncio.run(go(Stage()))


def test_nothing_is_left_open_of_a_worker_that_died() -> None:
    async def go(stage: Stage) -> None:
        before = open_files()
        counts = SharedCounts.create()
        stage.lend(1, 1, counts)
        for sock in stage.workers.pop(1):
            sock.close()
        await asyncio.sleep(0.05)
        stage.holder.give_back(1)
        counts.close()
        await until(lambda: open_files() == before)

    asyncio.run(go(Stage()))


def counting_maps() -> int:
    return Path("/proc/self/maps").read_text().count("trireme-counts")


def open_files() -> int:
    gc.collect()  # what other tests have left
    return len(os.listdir("/proc/self/fd"))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
