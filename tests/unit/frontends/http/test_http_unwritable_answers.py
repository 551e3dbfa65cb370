"""Responses that cannot be written, as none should be: a client is told so, or its connection ends; it never waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from trireme.core.errors import InternalError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

FAILURE = b'{"error":"the server failed to answer the request: TypeError: '
TENSOR = Tensor("OUTPUT0", "FP32", (1,), bytes(4))
INFER = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'
WAYS = {
    "infer": ("/v2/models/ident/infer", INFER, "ident"),
    "generate": ("/v2/models/text/generate", b'{"INPUT0":"x"}', "text"),
    "generate_stream": ("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}', "stream"),
}


LARGE = Tensor("OUTPUT0", "FP32", (1, 200_000), bytes(800_000))
"""Written in a thread."""
HALVES = Tensor("OUTPUT0", "FP16", (1, 400_000), bytes(800_000))


def unwritable(tensor: Tensor = TENSOR, is_final: bool = True) -> InferenceResponse:
    parameters: Any = {"p": object()}
    return InferenceResponse([tensor], None, parameters, is_final)


async def told(client: Any, request: bytes) -> bytes:
    """What a client hears, also from another thread."""
    client.feed(request)
    await asyncio.wait_for(client.answered(), 30)
    return bytes(client.take())


@pytest.mark.parametrize("tensor", [TENSOR, LARGE], ids=["short", "long"])
@pytest.mark.parametrize("way", WAYS)
def test_a_response_that_cannot_be_written_is_answered_with_an_error(
    way: str, tensor: Tensor, client: Any, server: Any, post: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path, body, model = WAYS[way]
    server.models[model].behaviour = lambda request: request.respond(unwritable(tensor))
    answer = asyncio.run(told(client, post(path, body)))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert FAILURE in answer
    assert server.requests[0].is_cancelled
    assert f"failed to answer POST {path}" in caplog.text


@pytest.mark.parametrize("tensor", [TENSOR, LARGE], ids=["short", "long"])
def test_a_stream_whose_next_response_cannot_be_written_ends_with_its_connection(
    tensor: Tensor, client: Any, server: Any, post: Any
) -> None:
    def stream(request: Any) -> None:
        request.respond(InferenceResponse([TENSOR], is_final=False))
        request.respond(unwritable(tensor, is_final=False))

    server.models["stream"].behaviour = stream
    answer = asyncio.run(told(client, post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}')))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.count(b"data: ") == 1
    assert not answer.endswith(b"0\r\n\r\n")  # a client can tell that this is not all
    assert client.transport.is_closed or client.transport.has_written_eof
    assert server.requests[0].is_cancelled


class Counted:
    """Statistics of the model."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def record_unanswered(self, request: Any, message: str) -> None:
        self.messages.append(message)


@pytest.mark.parametrize("tensor", [TENSOR, LARGE], ids=["short", "long"])
def test_such_a_response_counts_as_a_failure_of_its_request(
    tensor: Tensor, client: Any, server: Any, post: Any
) -> None:
    counted = Counted()

    def behave(request: Any) -> None:
        request.answer_stats = counted
        request.respond(unwritable(tensor))

    server.models["ident"].behaviour = behave
    asyncio.run(told(client, post("/v2/models/ident/infer", INFER)))
    [message] = counted.messages
    assert message.startswith("the server failed to answer the request: TypeError: ")


@pytest.mark.parametrize("tensor", [Tensor("OUTPUT0", "FP16", (1,), bytes(2)), HALVES], ids=["short", "long"])
@pytest.mark.parametrize(("way", "headers"), [*((way, ()) for way in WAYS), ("infer", ("Accept: text/event-stream",))])
def test_one_that_has_no_form_in_json_counts_too(
    way: str, headers: tuple[str, ...], tensor: Tensor, client: Any, server: Any, post: Any
) -> None:
    counted = Counted()
    path, body, model = WAYS[way]

    def behave(request: Any) -> None:
        request.answer_stats = counted
        request.respond(InferenceResponse([tensor]))

    server.models[model].behaviour = behave
    answer = asyncio.run(told(client, post(path, body, *headers)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    [message] = counted.messages
    assert message.encode() in answer


def break_after_one(request: Any) -> None:
    request.respond(InferenceResponse([TENSOR], is_final=False))
    request.respond(unwritable(is_final=False))


@pytest.mark.parametrize("is_answered_first", [False, True])
def test_nothing_is_written_behind_a_stream_that_was_cut_off(
    is_answered_first: bool, client: Any, server: Any, post: Any
) -> None:
    started: list[Any] = []
    server.models["stream"].behaviour = started.append
    if not is_answered_first:
        server.models["ident"].behaviour = lambda request: None
    begun = post("/v2/models/ident/infer", INFER)[:-5]
    client.feed(post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}') + 2 * post(*WAYS["infer"][:2]) + begun)
    assert client.take() == b""
    held_bytes = client.connection._held_bytes
    assert (held_bytes > 0) == is_answered_first

    async def story() -> None:
        break_after_one(started[0])
        answer = client.take()
        assert answer.count(b"HTTP/1.1 ") == answer.count(b"data: ") == 1
        assert client.transport.has_written_eof  # closed behind what the client still sends
        assert [request.is_cancelled for request in server.requests[1:]] == 2 * [not is_answered_first]
        client.feed(b"ce}]}" + post("/v2/models/ident/infer", INFER))
        assert (client.take(), len(server.requests), client.connection._held_bytes) == (b"", 3, 0)

    asyncio.run(story())


def test_what_comes_for_requests_behind_it_before_they_are_cancelled_is_no_failure(
    client: Any, server: Any, post: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Where many are cancelled at once, others have their turn in between."""
    started: list[Any] = []
    server.models["stream"].behaviour = started.append
    server.models["ident"].behaviour = lambda request: None
    client.feed(post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}') + 2 * post(*WAYS["infer"][:2]))
    steps: list[Any] = []
    client.connection._owner.leaving = SimpleNamespace(do=steps.extend)

    async def story() -> None:
        break_after_one(started[0])
        caplog.clear()
        for request in server.requests[1:]:
            request.respond(InferenceResponse([TENSOR]))
        assert (caplog.records, client.connection._held_bytes) == ([], 0)
        for step in steps:
            step()
        assert all(request.is_cancelled for request in server.requests)

    asyncio.run(story())


def test_a_stream_that_was_pushed_out_while_its_event_was_written_leaves_others_alone(
    client: Any, server: Any, post: Any, caplog: pytest.LogCaptureFixture
) -> None:
    streams: list[Any] = []
    server.models["stream"].behaviour = streams.append
    server.models["ident"].behaviour = lambda request: None
    stream = post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}')
    client.feed(post(*WAYS["infer"][:2]) + stream + stream.replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n"))
    client.connection._owner.leaving = SimpleNamespace(do=lambda steps: None)

    async def story() -> None:
        streams[1].respond(InferenceResponse([LARGE], is_final=False))
        work = client.connection._exchanges[2].work
        break_after_one(streams[0])
        caplog.clear()
        await asyncio.to_thread(until, lambda: not work.is_busy)
        server.requests[0].respond(InferenceResponse([TENSOR]))
        assert (client.take().count(b"HTTP/1.1 200 OK"), caplog.records) == (2, [])

    asyncio.run(story())


def test_a_stream_that_begins_behind_the_end_of_its_connection_is_no_failure(
    client: Any, server: Any, post: Any, caplog: pytest.LogCaptureFixture
) -> None:
    old = post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}').replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n")
    started: list[Any] = []
    server.models["stream"].behaviour = started.append
    client.feed(old)
    client.connection._owner.leaving = SimpleNamespace(do=lambda steps: None)
    client.connection.connection_lost(None)
    started[0].respond(InferenceResponse([TENSOR], is_final=False))
    assert caplog.records == []


def test_a_stream_that_ends_with_its_connection_is_the_last_answer(client: Any, server: Any, post: Any) -> None:
    """Of HTTP/1.0, whose clients take no chunks."""
    old = post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}').replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n")
    started: list[Any] = []
    server.models["stream"].behaviour = started.append
    client.feed(old.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n") + post(*WAYS["infer"][:2]))
    started[0].respond(InferenceResponse([TENSOR], is_final=False))
    started[0].respond(InferenceResponse([TENSOR]))
    answer = client.take()
    assert answer.count(b"HTTP/1.") == 1
    assert answer.count(b"data: ") == 2
    assert client.transport.is_closed or client.transport.has_written_eof


def test_an_error_behind_some_of_an_answer_ends_the_connection_too(client: Any, server: Any, post: Any) -> None:
    def refuse_late(request: Any) -> None:
        request.respond(InferenceResponse([TENSOR], is_final=False))
        raise InternalError("no more")

    server.models["stream"].behaviour = refuse_late
    answer = client.ask(post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}'))
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"data: ") == 1
    assert client.transport.is_closed
    assert server.requests[0].is_cancelled


def test_a_large_answer_that_cannot_be_written_to_its_end_is_not_followed_by_an_error(
    client: Any, server: Any, post: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tensors are written one by one, the first of them behind the head."""
    body = INFER.replace(b"}]}", b'}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}')
    server.models["ident"].behaviour = lambda request: request.respond(InferenceResponse([LARGE]))
    write = client.transport.write

    def write_once(data: Any) -> None:
        write(data)
        monkeypatch.setattr(client.transport, "write", raise_)

    def raise_(data: Any) -> None:
        monkeypatch.setattr(client.transport, "write", write)
        raise BufferError("no such buffer")

    monkeypatch.setattr(client.transport, "write", write_once)
    answer = client.ask(post("/v2/models/ident/infer", body))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert client.transport.is_closed


def test_a_model_that_is_loaded_for_nobody_is_asked_nothing(client: Any, server: Any, post: Any) -> None:
    """The server ends while a request waits for its model, and the request is answered by that."""
    loaded = asyncio.Event()

    async def story() -> None:
        async def wait(name: str, version: str) -> None:
            await loaded.wait()
            server.models["text"].is_placeholder = False

        server.calls.inference = SimpleNamespace(loaded=wait)
        server.models["text"].is_placeholder = True
        client.feed(post("/v2/models/text/generate", b'{"INPUT0":"x"}'))
        await asyncio.sleep(0)
        client.connection.answer_rest()
        assert client.take().startswith(b"HTTP/1.1 503 ")
        loaded.set()
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(story())
    assert server.requests == []
