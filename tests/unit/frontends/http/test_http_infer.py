"""The infer endpoint: bodies to requests, responses to answers, codings, forwarded headers, and refusals."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from typing import Any

import pytest

from trireme.core.elements import encode_bytes
from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.core.request import SEQUENCE_START
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

INFER = "/v2/models/ident/infer"
PAIR = {"name": "INPUT0", "shape": [1, 2], "datatype": "FP32"}
DATA = {"inputs": [{**PAIR, "data": [1, 2.5]}]}
ANSWER = (
    b'{"model_name":"ident","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1,2],'
    b'"data":[1.0,2.5]}]}'
)
BINARY_ANSWER = ANSWER.replace(b'"data":[1.0,2.5]', b'"parameters":{"binary_data_size":8}')
NUMBERS = struct.pack("<2f", 1, 2.5)


def body_of(document: Any) -> bytes:
    return json.dumps(document).encode()


def json_answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def plain_error(message: str, status: bytes) -> bytes:
    body = json.dumps({"error": message}, separators=(",", ":")).encode()
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\nContent-Type: text/plain\r\n\r\n%b" % (status, len(body), body)


def octets(json_part: bytes, binary: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
        b"Content-Length: %d\r\n\r\n%b%b" % (len(json_part), len(json_part) + len(binary), json_part, binary)
    )


def binary_request(post: Any, document: Any, data: bytes, path: str = INFER) -> bytes:
    text = body_of(document)
    request: bytes = post(path, text + data, f"Inference-Header-Content-Length: {len(text)}")
    return request


def test_json_in_and_json_out(client: Any, server: Any, post: Any) -> None:
    assert client.ask(post(INFER, body_of(DATA))) == json_answer(ANSWER)
    assert client.ask(post("/v2/models/ident/versions/1/infer", body_of({"id": 'a"b', **DATA}))) == json_answer(
        b'{"id":"a\\"b",' + ANSWER[1:]
    )
    request = server.requests[1]
    assert (request.model_name, request.model_version, request.id) == ("ident", "1", 'a"b')
    assert request.inputs["INPUT0"].shape == (1, 2)
    assert request.inputs["INPUT0"].data == NUMBERS


def test_binary_in_and_binary_out(client: Any, post: Any) -> None:
    document = {
        "inputs": [{**PAIR, "parameters": {"binary_data_size": 8}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    for _ in range(2):
        assert client.ask(binary_request(post, document, NUMBERS)) == octets(BINARY_ANSWER, NUMBERS)


def test_the_wish_for_binary_outputs_holds_for_those_not_listed(client: Any, post: Any) -> None:
    wish = {**DATA, "parameters": {"binary_data_output": True}}
    assert client.ask(post(INFER, body_of(wish))) == octets(BINARY_ANSWER, NUMBERS)
    listed = {**wish, "outputs": [{"name": "OUTPUT0"}]}
    assert client.ask(post(INFER, body_of(listed))) == json_answer(ANSWER)


def test_raw_requests_and_empty_bodies(client: Any, server: Any, post: Any) -> None:
    assert client.ask(post(INFER, NUMBERS, "Inference-Header-Content-Length: 0")) == octets(BINARY_ANSWER, NUMBERS)
    empty = BINARY_ANSWER.replace(b"[1,2]", b"[1,0]").replace(b":8}", b":0}")
    assert client.ask(post(INFER, b"")) == json_answer(empty)


def test_everything_the_document_says_reaches_the_request(client: Any, server: Any, post: Any) -> None:
    parameters = {"sequence_id": 5, "sequence_start": True, "priority": 2, "timeout": 7, "own": "x"}
    client.ask(post(INFER, body_of({**DATA, "parameters": parameters, "outputs": [{"name": "OUTPUT0"}]})))
    (request,) = server.requests
    assert (request.correlation_id, request.flags) == (5, SEQUENCE_START)
    assert (request.priority, request.timeout_us) == (2, 7)
    assert request.parameters == {"own": "x"}
    assert request.requested_outputs == ("OUTPUT0",)


def test_requests_do_not_share_their_parameters(client: Any, server: Any, post: Any) -> None:
    document = {"inputs": [{**PAIR, "parameters": {"binary_data_size": 8}}], "parameters": {"a": 1}}
    for _ in range(2):
        client.ask(binary_request(post, document, NUMBERS))
    server.requests[0].parameters["a"] = 2
    assert server.requests[1].parameters == {"a": 1}


def test_a_model_without_exactly_one_answer_is_refused_before_the_body_is_looked_at(client: Any, post: Any) -> None:
    assert client.ask(post("/v2/models/stream/infer", b"{")) == plain_error(
        "HTTP end point doesn't support models with decoupled transaction policy", b"501 Not Implemented"
    )
    assert client.ask(post("/v2/models/nope/infer", b"{")) == plain_error(
        "Request for unknown model: 'nope' is not found", b"404 Not Found"
    )


@pytest.mark.parametrize(("value", "shown"), [("93", 93), ("-1", -1)])
def test_a_header_length_outside_the_body(client: Any, post: Any, value: str, shown: int) -> None:
    assert client.ask(post(INFER, b"{}", f"Inference-Header-Content-Length: {value}")) == plain_error(
        f"inference header size should be in range (0, 2), got: {shown}", b"400 Bad Request"
    )


@pytest.mark.parametrize(
    ("path", "body", "refused"),
    [
        ("/v2/models/ident/versions/1/infer", b"{", ("ident", "1", "failed to parse the request JSON")),
        ("/v2/models/ident/infer", b'{"inputs": "%b' % (b"x" * 200_000), ("ident", "", "failed to parse")),
        ("/v2/models/stream/infer", b"{}", ("stream", "", "decoupled transaction policy")),
        ("/v2/models/stream/versions/1/infer", b"x" * 200_000, ("stream", "1", "decoupled transaction policy")),
        ("/v2/models/ident/versions/1/generate", b"{", ("ident", "1", "failed to parse")),
        ("/v2/models/ident/generate_stream", b'{"x": "%b' % (b"x" * 200_000), ("ident", "", "failed to parse")),
        ("/v1/chat/completions", b'{"model":"ident","messages":[', ("", "", "JSON")),
        ("/v1/completions", b'{"model":"ident","prompt":"%b' % (b"x" * 200_000), ("", "", "JSON")),
        ("/v1/completions", b'{"model":"ident","prompt":"x","max_tokens":-5}', ("ident", "", "'max_tokens'")),
        ("/v1/chat/completions", b'{"model":"ident","messages":"x"}', ("ident", "", "'messages'")),
        ("/v1/chat/completions", b'{"model":"ident","messages":"%b"}' % (b"x" * 200_000), ("ident", "", "'messages'")),
    ],
)
def test_what_cannot_be_read_is_told_as_refused_once(
    client: Any, post: Any, server: Any, loop: Any, path: str, body: bytes, refused: tuple[str, str, str]
) -> None:
    told: list[tuple[str, str, str]] = []
    server.on_refused = lambda request, message: told.append((request.model_name, request.model_version, message))

    async def story() -> bytes:
        client.feed(post(path, body))
        await client.answered()
        return bytes(client.take())

    assert b'"error"' in loop.run_until_complete(story())
    ((model, version, message),) = told
    assert (model, version) == refused[:2]
    assert refused[2] in message


def test_documents_that_are_wrong_and_requests_that_are_refused(client: Any, post: Any) -> None:
    assert client.ask(post(INFER, b"{")) == json_answer(
        b'{"error":"failed to parse the request JSON buffer: Missing a name for object member. at 1"}',
        b"500 Internal Server Error",
    )
    other = {"inputs": [{**PAIR, "name": "ZZ", "data": [1, 2]}]}
    assert client.ask(post(INFER, body_of(other))) == json_answer(
        b"{\"error\":\"unexpected inference input 'ZZ' for model 'ident'\"}", b"400 Bad Request"
    )


@pytest.mark.parametrize(
    ("responses", "status", "message"),
    [
        ([InferenceResponse.final_mark()], b"500 Internal Server Error", "expected a single response, got 0"),
        (
            [InferenceResponse([], is_final=False), InferenceResponse([])],
            b"500 Internal Server Error",
            "expected a single response, got 2",
        ),
        ([InferenceResponse.of_error(UnavailableError("full"))], b"503 Service Unavailable", "full"),
        (
            [
                InferenceResponse([], InvalidArgumentError("bad"), is_final=False),
                InferenceResponse.final_mark(),
            ],
            b"400 Bad Request",
            "bad",
        ),
    ],
)
def test_responses_that_are_not_one_or_not_good(
    client: Any, server: Any, post: Any, responses: list[InferenceResponse], status: bytes, message: str
) -> None:
    server.models["ident"].behaviour = lambda request: [request.respond(response) for response in responses]
    assert client.ask(post(INFER, body_of(DATA))) == plain_error(message, status)


def test_a_single_response_may_come_before_its_final_mark(client: Any, server: Any, post: Any) -> None:
    def behaviour(request: Any) -> None:
        request.respond(InferenceResponse([Tensor("OUTPUT0", "FP32", (1, 2), NUMBERS)], is_final=False))
        assert client.take() == b""
        request.respond(InferenceResponse.final_mark())

    server.models["ident"].behaviour = behaviour
    assert client.ask(post(INFER, body_of(DATA))) == json_answer(ANSWER)


def test_an_output_without_a_json_form_is_an_error(client: Any, server: Any, post: Any) -> None:
    server.models["ident"].behaviour = lambda request: request.respond(
        InferenceResponse([Tensor("OUTPUT0", "FP16", (1,), b"\0\0")])
    )
    message = "sending FP16 data via JSON is not supported. Please use the binary data format for output"
    assert client.ask(post(INFER, body_of(DATA))) == plain_error(message, b"400 Bad Request")


def test_outputs_are_classified_on_request(client: Any, post: Any) -> None:
    document = {**DATA, "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1, "binary_data": True}}]}
    head, _, binary = client.ask(post(INFER, body_of(document))).partition(b"]}")
    assert b'"datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":18}' in head
    assert binary == encode_bytes([b"2.500000:1:one"])


def test_large_answers_are_written_without_joining(client: Any, server: Any, post: Any) -> None:
    data = bytes(100_000)
    server.models["ident"].behaviour = lambda request: request.respond(
        InferenceResponse([Tensor("OUTPUT0", "UINT8", (100_000,), memoryview(data))])
    )
    client.feed(post(INFER, body_of({**DATA, "parameters": {"binary_data_output": True}})))
    head, payload = client.transport.written
    assert payload == data
    assert head.endswith(b'"parameters":{"binary_data_size":100000}}]}')


@pytest.mark.parametrize(
    ("coding", "compress", "decompress"),
    [("gzip", gzip.compress, gzip.decompress), ("deflate", zlib.compress, zlib.decompress)],
)
def test_bodies_are_compressed_both_ways(client: Any, post: Any, coding: str, compress: Any, decompress: Any) -> None:
    request = post(INFER, compress(body_of(DATA)), f"Content-Encoding: {coding}", f"Accept-Encoding: {coding}")
    head, _, body = client.ask(request).partition(b"\r\n\r\n")
    assert head == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: %b\r\nContent-Length: %d"
        % (coding.encode(), len(body))
    )
    assert decompress(body) == ANSWER


def test_large_bodies_are_compressed_beside_the_event_loop(client: Any, post: Any, loop: Any) -> None:
    count = 100_000
    numbers = struct.pack(f"<{count}f", *range(count))
    document = body_of(
        {
            "inputs": [{**PAIR, "shape": [1, count], "parameters": {"binary_data_size": 4 * count}}],
            "parameters": {"binary_data_output": True},
        }
    )
    raw = post(
        INFER,
        gzip.compress(document + numbers, 1),
        f"Inference-Header-Content-Length: {len(document)}",
        "Content-Encoding: gzip",
        "Accept-Encoding: deflate",
    )

    async def story() -> bytes:
        client.feed(raw)
        await client.answered()
        return client.take()  # type: ignore[no-any-return]

    head, _, body = loop.run_until_complete(story()).partition(b"\r\n\r\n")
    assert b"Content-Encoding: deflate" in head
    assert zlib.decompress(body).endswith(numbers)


def test_unknown_codings_are_refused(client: Any, post: Any) -> None:
    assert client.ask(post(INFER, body_of(DATA), "Content-Encoding: br")) == (
        b"HTTP/1.1 501 Not Implemented\r\nAccept-Encoding: gzip, deflate\r\nContent-Length: 40\r\n"
        b'Content-Type: text/plain\r\n\r\n{"error":"Unsupported compression type"}'
    )
    assert b"400 Bad Request" in client.ask(post(INFER, b"xxxx", "Content-Encoding: gzip"))


def test_sizes_are_limited(connect: Any, post: Any) -> None:
    client = connect(max_input_size_bytes=100)
    padded = body_of(DATA) + b" " * 100
    answer = client.ask(post(INFER, padded))
    assert b"request JSON size of %d bytes exceeds the maximum allowed input size of 100 bytes" % len(padded) in answer
    assert b"Decompressed data size exceeds" in client.ask(post(INFER, gzip.compress(padded), "Content-Encoding: gzip"))
    assert b"raw input has a byte_size (200 bytes)" in client.ask(
        post(INFER, bytes(200), "Inference-Header-Content-Length: 0")
    )
    announced = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" % INFER.encode()
    assert b"request JSON size of 100000 bytes" in client.ask(announced + b"x" * 100_000)


def test_binary_data_is_not_limited_by_the_input_size(connect: Any, post: Any) -> None:
    client = connect(max_input_size_bytes=120)
    document = {"inputs": [{**PAIR, "shape": [1, 100], "parameters": {"binary_data_size": 400}}]}
    assert b"200 OK" in client.ask(binary_request(post, document, bytes(400)))


def test_matching_headers_become_parameters(connect: Any, server: Any, get: Any, post: Any) -> None:
    client = connect(header_forward_pattern="^x-.*")
    client.ask(post(INFER, body_of({**DATA, "parameters": {"a": 1}}), "X-Tenant: t1", "Other: y"))
    assert server.requests[0].parameters == {"a": 1, "X-Tenant": "t1"}
    client.ask(post("/v2/models/text/generate", b'{"INPUT0":"a"}', "X-Tenant: t1"))
    assert server.requests[1].parameters == {}


@pytest.mark.parametrize("name", ["timeout", "triton_x"])
def test_reserved_headers_cannot_be_forwarded(connect: Any, post: Any, name: str) -> None:
    client = connect(header_forward_pattern=".*")
    assert client.ask(post(INFER, body_of(DATA), f"{name}: 1")) == json_answer(
        f'{{"error":"Header \'{name}\' is reserved for Triton usage and cannot be forwarded."}}'.encode(),
        b"400 Bad Request",
    )
