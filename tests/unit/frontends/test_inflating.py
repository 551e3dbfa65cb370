"""Inflating beside the event loop: the memory that it may take, whose turn it is, and what is left behind."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator

import pytest
from waiting import until

from trireme.core.threads.pools import create_threads
from trireme.frontends.inflating import SHORT_BYTES, Inflation, InflationShare
from trireme.protocol.http1.compression import CompressedBody
from trireme.server.long_work import OrderedWork

LONG = SHORT_BYTES + 1
ROOM_BYTES = 2 * LONG


class Line:
    """Bodies that are inflated on the loop of a test, which reads them when it likes."""

    def __init__(self, inflation: Inflation) -> None:
        self.inflation = inflation
        self.arrived: list[tuple[int, InflationShare]] = []
        self.failures: list[Exception] = []
        self._threads = create_threads("test")

    def send(self, size_bytes: int) -> tuple[OrderedWork, InflationShare]:
        work = OrderedWork(asyncio.get_running_loop(), self._threads, self.failures.append)
        share = InflationShare()
        body = CompressedBody(zlib.compress(bytes(size_bytes), 1), 1 << 30)
        self.inflation.compute(work, body, share, lambda text: self.arrived.append((len(text), share)))
        return work, share

    async def wait_for(self, count: int) -> list[int]:
        for _ in range(1000):
            if len(self.arrived) >= count:
                break
            await asyncio.sleep(0.01)
        return [size for size, _ in self.arrived]

    def read(self, index: int) -> None:
        self.arrived[index][1].close()

    def close(self) -> None:
        self.inflation.close()
        self._threads.shutdown()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line(Inflation("test", short_room_bytes=SHORT_BYTES, long_room_bytes=ROOM_BYTES))
    yield line
    line.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(bounded())


async def settle(line: Line) -> None:
    """Until the threads of long bodies have nothing that they could begin."""
    long_threads = line.inflation.threads[1]
    await asyncio.to_thread(until, lambda: not long_threads._work_queue.qsize())


def test_no_more_is_inflated_than_there_is_room_for_until_something_was_read(line: Line) -> None:
    async def scenario() -> None:
        shares = [line.send(LONG)[1] for _ in range(4)]
        assert await line.wait_for(2) == [LONG, LONG]
        assert line.inflation.used_bytes == ROOM_BYTES
        await asyncio.sleep(0.05)
        assert len(line.arrived) == 2
        line.read(0)
        assert await line.wait_for(3) == [LONG] * 3
        assert line.inflation.used_bytes == ROOM_BYTES
        line.read(1)
        assert await line.wait_for(4) == [LONG] * 4
        for share in shares:
            share.close()
        assert line.inflation.used_bytes == 0

    run(scenario)


def test_short_bodies_do_not_wait_behind_long_ones(line: Line) -> None:
    async def scenario() -> None:
        shares = [line.send(LONG)[1] for _ in range(4)]
        await line.wait_for(2)
        shares.append(line.send(100)[1])
        assert await line.wait_for(3) == [LONG, LONG, 100]
        for share in shares:
            share.close()

    run(scenario)


def test_a_body_that_is_larger_than_the_room_is_inflated_alone(line: Line) -> None:
    async def scenario() -> None:
        shares = [line.send(size)[1] for size in (LONG, 2 * ROOM_BYTES, LONG)]
        assert await line.wait_for(1) == [LONG]
        line.read(0)
        assert await line.wait_for(2) == [LONG, 2 * ROOM_BYTES]
        await asyncio.sleep(0.05)
        assert len(line.arrived) == 2, "what came later does not overtake, nor fit beside it"
        line.read(1)
        assert (await line.wait_for(3))[2] == LONG
        for share in shares:
            share.close()
        assert line.inflation.used_bytes == 0

    run(scenario)


def test_what_nobody_waits_for_any_more_takes_no_room(line: Line) -> None:
    async def scenario() -> None:
        first, second = line.send(LONG)[1], line.send(LONG)[1]
        await line.wait_for(2)
        work, waiting = line.send(LONG)
        await settle(line)
        work.drop()
        waiting.close()
        first.close()
        second.close()
        last = line.send(LONG)[1]
        assert await line.wait_for(3) == [LONG] * 3
        assert line.inflation.used_bytes == LONG
        last.close()
        assert line.inflation.used_bytes == 0

    run(scenario)


def test_many_bodies_of_all_sizes_are_all_inflated_and_leave_nothing(line: Line) -> None:
    sizes = [LONG if number % 5 == 0 else number * 1000 for number in range(1, 40)]

    async def scenario() -> None:
        for size in sizes:
            line.send(size)
        for index in range(len(sizes)):
            await line.wait_for(index + 1)
            line.read(index)
        assert sorted(size for size, _ in line.arrived) == sorted(sizes)
        assert line.inflation.used_bytes == 0
        assert not line.failures

    run(scenario)
