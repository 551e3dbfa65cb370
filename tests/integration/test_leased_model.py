"""A model of which a front-end process has workers, with this test in their place."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import numpy as np
from google.protobuf import text_format

from trireme.app.front_ends import _server_without_models
from trireme.app.leases.leased_model import LeasedModel
from trireme.app.leases.shared_counts import SharedCounts
from trireme.backends.python.channel import messages
from trireme.config.message import new_config
from trireme.config.options.server import ServerOptions
from trireme.core.errors import LeaseEndedError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.recent.record import NewRecords
from trireme.observe.stats import ModelStats

CONFIG = """
name: "m" backend: "python" max_batch_size: 2 dynamic_batching { }
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
MOST_WAITING = 16
"""Eight batches of two for one worker."""


class Worker:
    """The other end of a lease, which answers when it is told to."""

    def __init__(self) -> None:
        self.sock, theirs = socket.socketpair()
        self.side, their_side = socket.socketpair()
        self.sock.setblocking(False)
        self.sockets = (theirs, their_side)

    async def take(self) -> tuple[int, int]:
        """The number of the next batch, and how many requests it has."""
        message = await self._read()
        assert message[0] == messages.EXECUTE
        return message[1], len(message[2])

    async def answer(self) -> int:
        """Answers the next batch; how many requests it had."""
        number, count = await self.take()
        output = ("OUT", "INT32", (1, 1), np.zeros(1, np.int32).tobytes())
        results = (messages.RESULTS, number, [((output,), None, None)] * count, None, 1, 2, 3)
        await asyncio.get_running_loop().sock_sendall(self.sock, messages.encode(results))
        return count

    async def is_sent_back(self) -> bool:
        async with asyncio.timeout(10):
            return await asyncio.get_running_loop().sock_recv(self.sock, 1) == b""

    async def _read(self) -> tuple[object, ...]:
        async with asyncio.timeout(10):
            loop = asyncio.get_running_loop()
            length = messages.LENGTH.unpack(await loop.sock_recv(self.sock, 4))[0]
            return messages.decode(await loop.sock_recv(self.sock, length))

    def close(self) -> None:
        self.sock.close()
        self.side.close()


class Stage:
    """The model, and what the server process sees of it."""

    def __init__(self) -> None:
        message = new_config()
        text_format.Parse(CONFIG, message)
        self.counts = SharedCounts.create()
        self.stats = ModelStats("m", 1)
        self.unfit: list[str] = []
        inference = _server_without_models(ServerOptions()).inference
        shared = SharedCounts(os.dup(self.counts.fd))
        self.model = LeasedModel(
            inference, message.SerializeToString(), 1, False, shared, lambda: self.unfit.append("large"), self._note
        )
        self.new_records: list[tuple[str, str, NewRecords]] = []
        self.answers: list[InferenceResponse] = []
        self.counted: list[int] = []

    def _note(self, model: str, version: str, records: NewRecords) -> None:
        self.new_records.append((model, version, records))

    def lend(self, lease: int) -> Worker:
        worker = Worker()
        self.model.add(lease, f"m_0_{lease}", worker.sockets)
        return worker

    def ask(self, shape: tuple[int, ...] = (1, 1)) -> bool:
        data = np.zeros(shape, np.int32).tobytes()
        return self.model.start(InferenceRequest("m", "", "", {"IN": Tensor("IN", "INT32", shape, data)}, self._take))

    def _take(self, response: InferenceResponse) -> None:
        self.counts.bring_into(self.stats)
        self.counted.append(self.stats.success_count)
        self.answers.append(response)


def test_an_answer_is_counted_for_the_server_before_anybody_has_it() -> None:
    async def go(stage: Stage) -> None:
        worker = stage.lend(1)
        assert stage.ask()
        assert await worker.answer() == 1
        await until(lambda: len(stage.answers) == 1)
        assert stage.counted == [1]
        worker.close()

    asyncio.run(go(Stage()))


def test_what_is_begun_and_not_answered_is_shown_at_any_moment() -> None:
    async def go(stage: Stage) -> None:
        worker = stage.lend(1)
        for count in (1, 2, 3):
            assert stage.ask()
            assert stage.counts.inflight_count == count
        assert await worker.answer() == 1
        await until(lambda: len(stage.answers) == 1)
        assert stage.counts.inflight_count == 2
        assert await worker.answer() == 2
        await until(lambda: len(stage.answers) == 3)
        assert stage.counts.inflight_count == 0
        worker.close()

    asyncio.run(go(Stage()))


def test_slow_and_failed_requests_are_told_while_the_worker_is_there_and_when_it_goes() -> None:
    async def go(stage: Stage) -> None:
        worker = stage.lend(1)
        assert stage.ask()
        assert await worker.answer() == 1
        await until(lambda: stage.new_records)
        ((name, version, (slowest, failed, failed_count)),) = stage.new_records
        assert (name, version, len(slowest), failed, failed_count) == ("m", "1", 1, [], 0)
        assert stage.ask()
        await worker.take()
        worker.close()  # it dies with what it was given
        await until(lambda: len(stage.new_records) == 2)
        assert stage.new_records[1][2][2] == 1
        assert "is not healthy" in str(stage.new_records[1][2][1])

    asyncio.run(go(Stage()))


def test_no_request_is_begun_when_the_server_has_shut_the_switch() -> None:
    async def go(stage: Stage) -> None:
        worker = stage.lend(1)
        stage.counts.shut()
        assert not stage.ask()
        worker.close()

    asyncio.run(go(Stage()))


def test_what_is_wrong_and_what_finds_too_many_waiting_is_left_to_the_server() -> None:
    async def go(stage: Stage) -> None:
        worker = stage.lend(1)
        assert not stage.ask(shape=(1, 2))
        assert stage.counts.inflight_count == 0
        assert [stage.ask() for _ in range(1 + MOST_WAITING + 1)] == [True] * (1 + MOST_WAITING) + [False]
        for count in (1, *[2] * (MOST_WAITING // 2)):
            assert await worker.answer() == count
        await until(lambda: len(stage.answers) == 1 + MOST_WAITING)
        worker.close()

    asyncio.run(go(Stage()))


def test_the_last_worker_goes_back_behind_all_that_waits() -> None:
    async def go(stage: Stage) -> None:
        first, second = stage.lend(1), stage.lend(2)
        assert all(stage.ask() for _ in range(6))
        leaving = [asyncio.ensure_future(stage.model.remove(lease)) for lease in (1, 2)]
        answered = 0
        answered += await first.answer()
        assert await first.is_sent_back()
        while answered < 6:
            answered += await second.answer()
        assert await second.is_sent_back()
        await asyncio.gather(*leaving)
        assert [answer.error for answer in stage.answers] == [None] * 6
        first.close()
        second.close()

    asyncio.run(go(Stage()))


def test_a_worker_that_dies_fails_what_it_had_and_what_waits_goes_to_the_server() -> None:
    async def go(stage: Stage) -> None:
        worker = stage.lend(1)
        assert all(stage.ask() for _ in range(3))
        await worker.take()
        worker.close()
        await until(lambda: len(stage.answers) == 3)
        errors = [answer.error for answer in stage.answers]
        assert sum(isinstance(error, LeaseEndedError) for error in errors) == 2
        assert sum(error is not None and "is not healthy" in error.message for error in errors) == 1
        stage.counts.bring_into(stage.stats)
        assert stage.stats.fail_count == 1
        assert not stage.ask()

    asyncio.run(go(Stage()))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
