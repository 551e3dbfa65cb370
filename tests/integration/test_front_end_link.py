"""The socket between the server process and a front-end process: messages of any size, whole and in order."""

from __future__ import annotations

import asyncio
import mmap
import socket
from typing import Any

from trireme.frontends.processes.process_link import ProcessLink


class End:
    """One end, and what came there."""

    def __init__(self, sock: socket.socket) -> None:
        self.taken: list[tuple[Any, ...]] = []
        self.is_lost = False
        self.link = ProcessLink(asyncio.get_running_loop(), sock, self.taken.append, self._lost)

    def _lost(self) -> None:
        self.is_lost = True

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.taken) < count:  # noqa: ASYNC110 - the link tells nobody
                await asyncio.sleep(0.001)


def ends() -> tuple[End, End]:
    ours, theirs = socket.socketpair()
    return End(ours), End(theirs)


def test_messages_of_all_sizes_arrive_in_order() -> None:
    async def run() -> None:
        one, other = ends()
        sizes = [0, 1, 1 << 20, 5, 3 << 20, 300_000, 7] * 3
        for number, size in enumerate(sizes):
            one.link.send_bytes(1, number, bytes([number]) * size)
            one.link.send((2, number, "text", None, (1.5, [True])))
        await other.wait_for(2 * len(sizes))
        expected: list[tuple[Any, ...]] = []
        for number, size in enumerate(sizes):
            expected += [(1, number, bytes([number]) * size), (2, number, "text", None, (1.5, [True]))]
        assert other.taken == expected
        one.link.close()
        other.link.close()

    asyncio.run(run())


def test_a_full_line_says_so_and_when_there_is_room() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        one = End(ours)
        drained = asyncio.Event()
        one.link.on_drained = drained.set
        assert not one.link.is_full
        for number in range(20):
            one.link.send_bytes(1, number, bytes(1 << 20))
        assert one.link.is_full
        other = End(theirs)
        await other.wait_for(20)
        await asyncio.wait_for(drained.wait(), 20)
        assert not one.link.is_full
        one.link.close()
        other.link.close()

    asyncio.run(run())


def test_the_end_of_one_is_told_to_the_other_once() -> None:
    async def run() -> None:
        one, other = ends()
        one.link.send((1, 2))
        one.link.flush()
        one.link.close()
        await other.wait_for(1)
        async with asyncio.timeout(20):
            while not other.is_lost:  # noqa: ASYNC110 - the link tells nobody else
                await asyncio.sleep(0.001)
        assert not one.is_lost
        other.link.send((3,))  # goes nowhere

    asyncio.run(run())


def test_a_message_that_cannot_be_sent_is_told_and_all_others_arrive() -> None:
    async def run() -> None:
        one, other = ends()
        unsent: list[tuple[Any, ...]] = []
        one.link.on_unsent = unsent.append
        with mmap.mmap(-1, 1 << 31) as large:  # memory that nobody touches
            one.link.send((1, 1))
            one.link.send((2, 2, large))
            one.link.send((3, 3))
            one.link.flush()
            assert [message[:2] for message in unsent] == [(2, 2)]
            unsent.clear()
        one.link.send((4, 4, object()))
        one.link.flush()
        one.link.send((5, 5))
        await other.wait_for(3)
        assert other.taken == [(1, 1), (3, 3), (5, 5)]
        assert [message[:2] for message in unsent] == [(4, 4)]
        one.link.close()
        other.link.close()

    asyncio.run(run())
