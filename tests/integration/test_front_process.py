"""The server's side of a front-end process, with this test at the other end of its link."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import HTTP_SERVICE
from trireme.frontends.inflight import ConnectionBytes, InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.front_process import FrontProcess
from trireme.frontends.processes.infer_relay import decode_error
from trireme.frontends.processes.process_link import ProcessLink
from trireme.server.call import Calls

CONNECTION = 1
"""The first that a process is given."""


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


class Counted(asyncio.Protocol):
    """A connection that holds something."""

    def __init__(self, inflight: ConnectionBytes) -> None:
        self.inflight = inflight

    def claim(self, peer: object) -> bool:
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.inflight.close()


class Front:
    """A front-end process, played by hand."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        side, self._their_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.calls = ModelCalls()
        self.taken: list[tuple[Any, ...]] = []
        calls = cast(Calls, self.calls)
        self.new_records: list[tuple[Any, ...]] = []
        self.process = FrontProcess(
            loop,
            ours,
            side,
            calls,
            lambda process: None,
            lambda term, reason: None,
            self.new_records.append,
            lambda: None,
        )
        self.link = ProcessLink(loop, theirs, self.taken.append, lambda: None)
        self.inflight = InflightBytes()
        self._clients = socket.socketpair()
        self.process.adopt(self._clients[0], None, HTTP_SERVICE, partial(Counted, ConnectionBytes(self.inflight)))
        self.link.send((messages.MADE, CONNECTION))

    def close(self) -> None:
        self.process.close()
        self.link.close()
        self._their_side.close()
        for client in self._clients:
            client.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the link tells nobody
            await asyncio.sleep(0.001)


def infer(call: int) -> tuple[Any, ...]:
    inputs = [("IN", "INT32", (1, 1), b"abcd")]
    return (messages.INFER, call, CONNECTION, HTTP_SERVICE, "model", "", "", inputs, (), None, False)


def test_an_answer_that_no_message_can_carry_fails_its_call_alone() -> None:
    async def run() -> None:
        front = Front()
        front.link.send(infer(1))
        front.link.send(infer(2))
        await until(lambda: len(front.calls.requests) == 2)
        front.taken.clear()
        parameters: list[Any] = [{"strange": object()}, {}]
        for request, given in zip(front.calls.requests, parameters, strict=True):
            request.respond(InferenceResponse([Tensor("OUT", "INT8", (1, 4), b"efgh")], None, given))
        await until(lambda: len(front.taken) == 2)
        answer, failure = front.taken
        assert answer[:2] == (messages.ANSWER, 2)
        assert failure[:2] == (messages.FAIL, 1)
        assert "parameters" in decode_error(failure[2]).message
        front.process.ping()
        await until(lambda: front.taken[-1] == (messages.PING,))
        front.close()

    asyncio.run(run())


def test_a_large_answer_arrives_in_parts_and_counts_until_the_client_has_it() -> None:
    async def run() -> None:
        front = Front()
        front.link.send(infer(1))
        await until(lambda: front.calls.requests)
        data = bytes(range(256)) * (1 << 17)  # the link is full before it is all sent
        front.calls.requests[0].respond(InferenceResponse([Tensor("OUT", "INT8", (1, len(data)), data)], None))
        await until(lambda: front.taken and front.taken[-1][0] == messages.ANSWER)
        parts = [message for message in front.taken if message[0] == messages.PART]
        assert b"".join(part[4] for part in parts) == data
        assert front.inflight.used_bytes == len(data)
        front.link.send((messages.UNSENT, CONNECTION, 1000))
        front.link.send((messages.SETTLED, 1))
        await until(lambda: front.inflight.used_bytes == 1000)
        front.link.send((messages.LOST, CONNECTION))
        await until(lambda: front.inflight.used_bytes == 0)
        front.close()

    asyncio.run(run())


def test_only_an_answer_to_a_ping_is_a_sign_of_life() -> None:
    async def run() -> None:
        front = Front()
        front.process.ping()
        front.process.ping()
        front.link.send((messages.USED, []))
        front.link.send(infer(1))
        await until(lambda: front.calls.requests)
        assert front.process.unanswered_count == 2
        front.link.send((messages.PONG,))
        await until(lambda: not front.process.unanswered_count)
        front.close()

    asyncio.run(run())


def test_what_it_tells_of_its_requests_arrives() -> None:
    async def run() -> None:
        front = Front()
        told = (
            messages.NEW_RECORDS,
            "m",
            "1",
            ([], [(1, "m", "1", "mine", 1, 5, 1, 1, (1, 2, 3), "BACKEND", "", None)], 1),
        )
        front.link.send(told)
        await until(lambda: front.new_records)
        assert front.new_records == [told]
        front.close()

    asyncio.run(run())
