"""The server's side of a front-end process, with this test at the other end of its line."""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import HTTP_SERVICE
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.front_process import FrontProcess
from trireme.frontends.processes.infer_lane import decode_error
from trireme.frontends.processes.line import Line
from trireme.server.call import Calls


class ModelCalls:
    """A server with one model, which takes requests."""

    is_decoupled = is_loading = False
    tracing = SimpleNamespace(is_on=False)

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []

    def open(self, name: str, version: str) -> ModelCalls:
        return self

    def start(self, request: InferenceRequest) -> None:
        self.requests.append(request)


class Front:
    """A front-end process, played by hand."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        side, self._their_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.calls = ModelCalls()
        self.taken: list[tuple[Any, ...]] = []
        calls = cast(Calls, self.calls)
        self.process = FrontProcess(loop, ours, side, calls, InflightBytes(), lambda process: None)
        self.line = Line(loop, theirs, self.taken.append, lambda: None)

    def close(self) -> None:
        self.process.close()
        self.line.close()
        self._their_side.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the line tells nobody
            await asyncio.sleep(0.001)


def infer(call: int) -> tuple[Any, ...]:
    return (messages.INFER, call, HTTP_SERVICE, "model", "", "", [("IN", "INT32", (1, 1), b"abcd")], (), None)


def test_an_answer_that_no_message_can_carry_fails_its_call_alone() -> None:
    async def run() -> None:
        front = Front()
        front.line.send(infer(1))
        front.line.send(infer(2))
        await until(lambda: len(front.calls.requests) == 2)
        with mmap.mmap(-1, 1 << 31) as large:  # memory that nobody touches
            outputs: list[Any] = [large, b"efgh"]
            for request, data in zip(front.calls.requests, outputs, strict=True):
                request.respond(InferenceResponse([Tensor("OUT", "INT8", (1, len(data)), data)], None))
            await until(lambda: len(front.taken) == 2)
        answer, failure = front.taken
        assert answer[:2] == (messages.ANSWER, 2)
        assert failure[:2] == (messages.FAIL, 1)
        assert "too large" in decode_error(failure[2]).message
        front.process.ping()
        await until(lambda: front.taken[-1] == (messages.PING,))
        front.close()

    asyncio.run(run())


def test_only_an_answer_to_a_ping_is_a_sign_of_life() -> None:
    async def run() -> None:
        front = Front()
        front.process.ping()
        front.process.ping()
        front.line.send((messages.USED, []))
        front.line.send(infer(1))
        await until(lambda: front.calls.requests)
        assert front.process.unanswered_count == 2
        front.line.send((messages.PONG,))
        await until(lambda: not front.process.unanswered_count)
        front.close()

    asyncio.run(run())
