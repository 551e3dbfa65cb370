"""Infer with `Accept: text/event-stream`: an event per response, and what it says."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest

from trireme.core.elements import decode_bytes, encode_bytes
from trireme.core.errors import UnavailableError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

STREAM = "/v2/models/stream/infer"
EVENTS = "Accept: text/event-stream"
HEAD = b"HTTP/1.1 %b\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
FINAL = {"model_name": "stream", "model_version": "1", "parameters": {"triton_final_response": True}, "outputs": []}


def asking(letters: str, **more: Any) -> bytes:
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [letters]}
    return json.dumps({"inputs": [tensor], **more}).encode()


def letter_event(letter: str, **more: Any) -> dict[str, Any]:
    output = {"name": "OUT", "datatype": "BYTES", "shape": [1], "data": [letter]}
    return {**more, "model_name": "stream", "model_version": "1", "outputs": [output]}


def events_of(answer: bytes, status: bytes = b"200 OK") -> list[dict[str, Any]]:
    """The data of every event, each of which must be a chunk of its own, up to the last chunk."""
    head = HEAD % status
    assert answer.startswith(head)
    body, found = answer[len(head) :], []
    while not body.startswith(b"0\r\n\r\n"):
        size, _, rest = body.partition(b"\r\n")
        chunk, body = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        assert chunk.startswith(b"data: ")
        assert chunk.endswith(b"\n\n")
        found.append(json.loads(chunk[6:]))
    assert body == b"0\r\n\r\n"
    return found


def play(request: Any) -> None:
    """Each letter of the input is a response, `e` an error, and a final mark follows; `!` is the last response."""
    for letter in decode_bytes(request.inputs["INPUT0"].data)[0].decode():
        output = Tensor("OUT", "BYTES", (1,), encode_bytes([letter]))
        if letter == "e":
            request.respond(InferenceResponse([], UnavailableError("bad thing"), is_final=False))
        elif letter == "!":
            request.respond(InferenceResponse([output], parameters={"mood": "good"}))
            return
        else:
            request.respond(InferenceResponse([output], is_final=False))
    request.respond(InferenceResponse.final_mark())


@pytest.fixture(autouse=True)
def _playing(server: Any) -> None:
    server.models["stream"].behaviour = play


@pytest.mark.parametrize(
    ("letters", "status", "events"),
    [
        ("ab", b"200 OK", [letter_event("a"), letter_event("b"), FINAL]),
        ("", b"200 OK", [FINAL]),
        ("ae", b"200 OK", [letter_event("a"), {"error": "bad thing"}, FINAL]),
        ("e", b"503 Service Unavailable", [{"error": "bad thing"}, FINAL]),
    ],
)
def test_every_response_is_an_event_and_the_last_one_says_so(
    client: Any, post: Any, letters: str, status: bytes, events: list[Any]
) -> None:
    assert events_of(client.ask(post(STREAM, asking(letters), EVENTS)), status) == events


def test_last_response_carries_the_mark_beside_its_own_parameters(client: Any, post: Any) -> None:
    first, last = events_of(client.ask(post(STREAM, asking("a!"), EVENTS)))
    assert "parameters" not in first
    assert last["parameters"] == {"mood": "good", "triton_final_response": True}
    assert last["outputs"][0]["data"] == ["!"]


def test_id_of_the_request_is_in_every_event(client: Any, post: Any) -> None:
    answer = client.ask(post(STREAM, asking("ab", id="mine"), EVENTS))
    assert [event["id"] for event in events_of(answer)] == ["mine"] * 3


def test_events_go_out_as_the_responses_come(client: Any, post: Any, server: Any) -> None:
    server.models["stream"].behaviour = lambda request: None
    assert client.ask(post(STREAM, asking("x"), EVENTS)) == b""
    request = server.requests[-1]
    output = Tensor("OUT", "BYTES", (1,), encode_bytes(["now"]))
    request.respond(InferenceResponse([output], is_final=False))
    assert b'"now"' in client.take()
    request.respond(InferenceResponse.final_mark())
    assert client.take().endswith(b"0\r\n\r\n")


def test_client_that_leaves_cancels_the_request(client: Any, post: Any, server: Any) -> None:
    server.models["stream"].behaviour = lambda request: None
    client.feed(post(STREAM, asking("x"), EVENTS))
    request = server.requests[-1]
    output = Tensor("OUT", "BYTES", (1,), encode_bytes(["now"]))
    request.respond(InferenceResponse([output], is_final=False))
    client.take()
    assert not request.is_cancelled
    client.connection.connection_lost(None)
    assert request.is_cancelled
    request.respond(InferenceResponse.final_mark())
    assert client.take() == b""


def test_binary_outputs_stand_beside_the_json_for_clients_that_read_them(client: Any, post: Any) -> None:
    wants = "Accept: text/event-stream; binary=base64"
    body = asking("ae", parameters={"binary_data_output": True})
    first, error, final = client.ask(post(STREAM, body, wants)).split(b"\r\n\r\n", 1)[1].split(b"\n\n")[:3]
    data, binary = first.split(b"\n")[-2:]
    (output,) = json.loads(data.removeprefix(b"data: "))["outputs"]
    assert output == {"name": "OUT", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}
    assert base64.b64decode(binary.removeprefix(b"binary: ")) == encode_bytes(["a"])
    assert b"binary" not in error + final
    for accept, wish in ((wants, False), (EVENTS, True)):
        answer = client.ask(post(STREAM, asking("a", parameters={"binary_data_output": wish}), accept))
        assert events_of(answer) == [letter_event("a"), FINAL]


def test_model_with_one_response_streams_one_event(client: Any, post: Any) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}
    body = json.dumps({"inputs": [tensor]}).encode()
    (event,) = events_of(client.ask(post("/v2/models/ident/infer", body, EVENTS)))
    assert event["parameters"] == {"triton_final_response": True}
    assert event["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}]


@pytest.mark.parametrize(
    "wish",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]},
    ],
)
def test_binary_outputs_are_written_out(client: Any, post: Any, wish: dict[str, Any]) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1.5]}
    body = json.dumps({"inputs": [tensor], **wish}).encode()
    for headers in ((EVENTS,), ()):
        answer = client.ask(post("/v2/models/ident/infer", body, *headers))
        is_binary = b'"binary_data_size":4' in answer
        assert is_binary != bool(headers)  # what is remembered of the document stays as it was
    answer = client.ask(post("/v2/models/ident/infer", body, EVENTS))
    assert events_of(answer)[0]["outputs"][0]["data"] == [1.5]


def test_classes_are_sent_where_asked_for(client: Any, post: Any) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
    wish = {"name": "OUTPUT0", "parameters": {"classification": 1}}
    body = json.dumps({"inputs": [tensor], "outputs": [wish]}).encode()
    (event,) = events_of(client.ask(post("/v2/models/ident/infer", body, EVENTS)))
    assert event["outputs"][0]["data"] == ["2.000000:1:one"]


def test_long_responses_are_written_beside_the_loop_and_keep_their_order(
    connect: Any, post: Any, server: Any, loop: asyncio.AbstractEventLoop
) -> None:
    sizes = (100_000, 1, 120_000)

    def behave(request: Any) -> None:
        for size in sizes:
            output = Tensor.from_numpy("OUT", np.zeros(size, np.int32))
            request.respond(InferenceResponse([output], is_final=False))
        request.respond(InferenceResponse.final_mark())

    server.models["stream"].behaviour = behave

    async def converse() -> bytes:
        client = connect()
        client.feed(post(STREAM, asking("x"), EVENTS))
        while not client.transport.output.endswith(b"0\r\n\r\n"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        answer: bytes = client.take()
        return answer

    events = events_of(loop.run_until_complete(asyncio.wait_for(converse(), 10)))
    assert [len(event["outputs"][0]["data"]) for event in events[:-1]] == list(sizes)
    assert events[-1] == FINAL


@pytest.mark.parametrize(
    "accept", ["Accept: application/json", "Accept: */*", "Accept: text/event-stream;q=0", "Accept: text/event-streams"]
)
def test_decoupled_models_stay_refused_without_the_header(client: Any, post: Any, accept: str) -> None:
    answer = client.ask(post(STREAM, asking("a"), accept))
    assert answer.startswith(b"HTTP/1.1 501 ")
    assert answer.endswith(b'{"error":"HTTP end point doesn\'t support models with decoupled transaction policy"}')


@pytest.mark.parametrize(
    "accept",
    ["accept: TEXT/Event-Stream", "Accept: application/json, text/event-stream", "Accept: text/event-stream; q=0.5"],
)
def test_header_is_understood_in_every_form(client: Any, post: Any, accept: str) -> None:
    assert events_of(client.ask(post(STREAM, asking("a"), accept))) == [letter_event("a"), FINAL]


def test_request_that_is_refused_at_once_gets_an_ordinary_error(client: Any, post: Any) -> None:
    body = asking("a").replace(b"INPUT0", b"OTHER")
    answer = client.ask(post(STREAM, body, EVENTS))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n")
    assert b"unexpected inference input 'OTHER'" in answer


def test_connection_takes_the_next_request_behind_a_stream(client: Any, post: Any, get: Any) -> None:
    answer = client.ask(post(STREAM, asking("a"), EVENTS) + get("/v2/health/live"))
    stream, _, rest = answer.partition(b"0\r\n\r\n")
    assert stream.startswith(HEAD % b"200 OK")
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
