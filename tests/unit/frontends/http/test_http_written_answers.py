"""Answers that are long to write as JSON: counted among the bytes in flight meanwhile, and refused without room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.server.long_work import json_memory_bytes

INFER = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'
GENERATE = b'{"INPUT0":"x"}'
LARGE = [Tensor("OUTPUT0", "FP32", (200_000,), bytes(800_000))]
WAYS = {
    "infer": ("/v2/models/ident/infer", INFER, "ident"),
    "generate": ("/v2/models/text/generate", GENERATE, "text"),
    "generate_stream": ("/v2/models/stream/generate_stream", GENERATE, "stream"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, server: Any, post: Any) -> bytes:
    """A request that is answered with a large output."""
    path, body, model = WAYS[request.param]
    server.models[model].behaviour = lambda request: request.respond(InferenceResponse(list(LARGE)))
    return bytes(post(path, body))


def test_outputs_are_counted_by_their_kinds() -> None:
    text = Tensor("OUTPUT0", "BYTES", (1,), bytes(10))
    assert json_memory_bytes([*LARGE, text]) == 800_000 * 15 + 10 * 16


def test_an_answer_is_counted_until_it_is_sent(client: Any, way: bytes, loop: asyncio.AbstractEventLoop) -> None:
    async def scenario() -> bytes:
        inflight = client.connection.inflight
        client.feed(way)
        assert inflight.held_bytes == json_memory_bytes(LARGE)
        await client.answered()
        assert inflight.held_bytes == 0
        return bytes(client.take())

    answer = loop.run_until_complete(scenario())
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"0.0,0.0" in answer


def test_an_answer_of_a_client_that_left_is_counted_no_longer(
    client: Any, way: bytes, loop: asyncio.AbstractEventLoop
) -> None:
    async def scenario() -> None:
        everybody = client.connection.inflight._all
        client.feed(way)
        assert everybody.used_bytes == json_memory_bytes(LARGE)
        client.connection.connection_lost(None)
        assert everybody.used_bytes == 0

    loop.run_until_complete(scenario())


def test_an_answer_that_is_given_up_is_given_back_once(
    client: Any, way: bytes, loop: asyncio.AbstractEventLoop
) -> None:
    async def scenario() -> None:
        inflight = client.connection.inflight
        client.feed(way)
        assert inflight.held_bytes == json_memory_bytes(LARGE)
        client.connection.answer_rest()
        for _ in range(200):  # what was being written comes back meanwhile
            await asyncio.sleep(0.005)
            assert (inflight.held_bytes, inflight._all.used_bytes) == (0, 0)

    loop.run_until_complete(scenario())


def test_an_answer_without_room_is_refused_with_the_limits_name(
    client: Any, way: bytes, loop: asyncio.AbstractEventLoop
) -> None:
    async def scenario() -> bytes:
        inflight = client.connection.inflight
        inflight._all.limit_bytes = json_memory_bytes(LARGE) - 1
        answer = client.ask(way)
        assert inflight.held_bytes == 0
        return bytes(answer)

    answer = loop.run_until_complete(scenario())
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable")
    assert b"use --max-inflight-bytes to increase the limit" in answer


def test_a_stream_goes_on_behind_a_response_without_room(
    client: Any, server: Any, post: Any, loop: asyncio.AbstractEventLoop
) -> None:
    def many(request: Any) -> None:
        for number in range(4):
            request.respond(InferenceResponse(list(LARGE), is_final=number == 3))

    server.models["stream"].behaviour = many

    async def scenario() -> bytes:
        inflight = client.connection.inflight
        inflight._all.limit_bytes = 2 * json_memory_bytes(LARGE)
        client.feed(post("/v2/models/stream/generate_stream", GENERATE))
        assert inflight.held_bytes == 2 * json_memory_bytes(LARGE)
        await client.answered()
        assert inflight.held_bytes == 0
        return bytes(client.take())

    answer = loop.run_until_complete(scenario())
    assert answer.count(b'"OUTPUT0":[0.0') == 2
    assert answer.count(b'"error":"requests and unread answers') == 2
    assert answer.endswith(b"0\r\n\r\n")
