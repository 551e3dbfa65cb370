"""The generate endpoints: one object or a stream of events, and what the first response decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trireme.core.elements import decode_bytes, encode_bytes
from trireme.core.errors import UnavailableError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.options import ConnectionLimits

GENERATE = "/v2/models/stream/generate"
STREAM = "/v2/models/stream/generate_stream"
JSON_HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 %b\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
NOT_ONE = (
    b'{"error":"generate expects model to produce exactly 1 response, use generate stream for model that '
    b'generates various number of responses"}'
)
ERROR = b'{"error":"bad thing"}'


def answer_of(text: str) -> bytes:
    return b'{"OUT":"%b","model_name":"stream","model_version":"1"}' % text.encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes) -> bytes:
    return chunk(b"data: " + data + b"\n\n")


def play(request: Any) -> None:
    """Each letter of the input is a response, `e` an error, and a final mark follows."""
    for letter in decode_bytes(request.inputs["INPUT0"].data)[0].decode():
        if letter == "e":
            request.respond(InferenceResponse([], UnavailableError("bad thing"), is_final=False))
        else:
            output = Tensor("OUT", "BYTES", (1,), encode_bytes([letter]))
            request.respond(InferenceResponse([output], is_final=False))
    request.respond(InferenceResponse.final_mark())


@pytest.fixture(autouse=True)
def _playing(server: Any) -> None:
    server.models["stream"].behaviour = play


@pytest.mark.parametrize(
    ("letters", "status", "body"),
    [
        ("a", b"200 OK", answer_of("a")),
        ("", b"200 OK", NOT_ONE),
        ("ab", b"200 OK", NOT_ONE),
        ("ae", b"200 OK", NOT_ONE),
        ("e", b"503 Service Unavailable", ERROR),
        ("ea", b"503 Service Unavailable", NOT_ONE),
    ],
)
def test_generate_wants_exactly_one_response(client: Any, post: Any, letters: str, status: bytes, body: bytes) -> None:
    answer = client.ask(post(GENERATE, json.dumps({"INPUT0": letters}).encode()))
    assert answer == JSON_HEAD % status + chunk(body) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("letters", "status", "events"),
    [
        ("a", b"200 OK", [answer_of("a")]),
        ("", b"200 OK", []),
        ("ab", b"200 OK", [answer_of("a"), answer_of("b")]),
        ("ae", b"200 OK", [answer_of("a"), ERROR]),
        ("e", b"503 Service Unavailable", [ERROR]),
        ("ea", b"503 Service Unavailable", [ERROR, answer_of("a")]),
    ],
)
def test_a_stream_sends_each_response_as_an_event(
    client: Any, post: Any, letters: str, status: bytes, events: list[bytes]
) -> None:
    answer = client.ask(post(STREAM, json.dumps({"INPUT0": letters}).encode()))
    assert answer == STREAM_HEAD % status + b"".join(map(event, events)) + b"0\r\n\r\n"


def test_events_are_sent_as_they_come_and_the_connection_stays(client: Any, server: Any, post: Any) -> None:
    server.models["stream"].behaviour = lambda request: None
    client.feed(post(STREAM, b'{"INPUT0":"x","id":"q","temperature":0.5}'))
    (request,) = server.requests
    assert (request.id, request.parameters) == ("q", {"id": "q", "temperature": 0.5})
    assert client.take() == b""
    output = Tensor("OUT", "BYTES", (1,), encode_bytes(["a"]))
    request.respond(InferenceResponse([output], is_final=False))
    assert client.take().endswith(b'"id":"q","model_name":"stream","model_version":"1"}\n\n\r\n')
    request.respond(InferenceResponse([output]))
    assert client.take().endswith(b"\n\n\r\n0\r\n\r\n")
    assert client.ask(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_leaves_its_stream_cancels_it(client: Any, server: Any, post: Any) -> None:
    server.models["stream"].behaviour = lambda request: None
    client.feed(post(STREAM, b'{"INPUT0":"x"}'))
    (request,) = server.requests
    request.respond(InferenceResponse([], is_final=False))
    client.connection.connection_lost(None)
    assert request.is_cancelled
    client.take()
    request.respond(InferenceResponse([], is_final=False))
    request.respond(InferenceResponse.final_mark())
    assert client.take() == b""


def test_a_client_that_does_not_read_its_stream_is_given_up(connect: Any, server: Any, post: Any) -> None:
    client = connect(ConnectionLimits(max_unsent_bytes=1000))
    server.models["stream"].behaviour = lambda request: None
    client.feed(post(STREAM, b'{"INPUT0":"x"}'))
    (request,) = server.requests
    client.connection.pause_writing()
    client.transport.buffer_size = 1001
    request.respond(InferenceResponse([], is_final=False))
    assert client.transport.is_aborted
    assert request.is_cancelled


def test_http_1_0_gets_no_chunks(client: Any, connect: Any) -> None:
    raw = b'POST %b HTTP/1.0\r\nContent-Length: 14\r\nConnection: keep-alive\r\n\r\n{"INPUT0":"a"}'
    answer = client.ask(raw % GENERATE.encode())
    assert answer.endswith(b"\r\nConnection: keep-alive\r\n\r\n" + answer_of("a"))
    assert b"chunked" not in answer
    streaming = connect()
    answer = streaming.ask(raw % STREAM.encode())
    assert answer.endswith(b"\r\n\r\ndata: " + answer_of("a") + b"\n\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert streaming.transport.is_closed


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", b"500", "failed to parse the request JSON buffer: The document is empty. at 0"),
        (b"{", b"500", "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
        (
            b'{"INPUT0":null}',
            b"500",
            "Unable to parse JSON bytes array: attempt to access JSON non-string as string (input 'INPUT0' takes text)",
        ),
    ],
)
@pytest.mark.parametrize("path", [GENERATE, STREAM])
def test_what_fails_before_inference_is_a_plain_json_error(
    client: Any, post: Any, path: str, body: bytes, status: bytes, message: str
) -> None:
    head, _, content = client.ask(post(path, body)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert b"Content-Type: application/json\r\nContent-Length: " in head
    assert json.loads(content) == {"error": message}


def test_unknown_models_and_codings_are_refused(client: Any, post: Any) -> None:
    assert b"404 Not Found\r\nContent-Type: application/json" in client.ask(post("/v2/models/nope/generate", b"{}"))
    answer = client.ask(post(GENERATE, b"{}", "Content-Encoding: gzip"))
    assert answer.endswith(b'{"error":"Unsupported content-encoding, only \'identity\' is supported."}')
    assert b"200 OK" in client.ask(post(GENERATE, b'{"INPUT0":"a"}', "Content-Encoding: identity"))


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("text", b"TEXT named_metrics.kv_cache_utilization=0.500000, named_metrics.max_token_capacity=640"),
        ("json", b'JSON {"named_metrics":{"kv_cache_utilization":0.500000,"max_token_capacity":640}}'),
    ],
)
def test_load_metrics_are_added_on_request(client: Any, post: Any, form: str, line: bytes) -> None:
    answer = client.ask(post(GENERATE, b'{"INPUT0":"a"}', f"endpoint-load-metrics-format: {form}"))
    assert b"\r\nendpoint-load-metrics: " + line + b"\r\n" in answer


def test_an_output_without_a_json_form_becomes_an_error(client: Any, server: Any, post: Any) -> None:
    server.models["stream"].behaviour = lambda request: request.respond(
        InferenceResponse([Tensor("OUT", "BF16", (1,), b"\0\0")])
    )
    answer = client.ask(post(STREAM, b'{"INPUT0":"a"}'))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/event-stream")
    assert b"sending BF16 data via JSON is not supported" in answer


@pytest.mark.parametrize(("endpoint", "expected"), [("generate", b"\0"), ("generate_stream", b"\1")])
def test_language_models_are_told_which_endpoint_asks(
    client: Any, server: Any, post: Any, endpoint: str, expected: bytes
) -> None:
    client.ask(post(f"/v2/models/writer/{endpoint}", b'{"messages":"[]"}'))
    assert server.requests[-1].inputs["stream"].data == expected
    client.ask(post(f"/v2/models/writer/{endpoint}", b'{"messages":"[]","stream":true}'))
    assert server.requests[-1].inputs["stream"].data == b"\1"


def test_chats_of_language_models_may_be_json(client: Any, server: Any, post: Any) -> None:
    messages = '[{"role":"user","content":"grüß Gott: \\"hi\\""}]'
    client.ask(post("/v2/models/writer/generate", f'{{"messages":{messages}}}'.encode()))
    tensor = server.requests[-1].inputs["messages"]
    assert tensor.shape == (1,)
    assert decode_bytes(tensor.data) == [messages.encode()]


def test_objects_are_still_refused_by_other_models(client: Any, post: Any) -> None:
    answer = client.ask(post("/v2/models/text/generate", b'{"INPUT0":[{"role":"user"}]}'))
    assert b"attempt to access JSON non-string as string" in answer
