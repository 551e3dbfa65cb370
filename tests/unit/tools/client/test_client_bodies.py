"""Bodies of HTTP, names that are nearly right, and failures in words."""

from __future__ import annotations

import http.client
import json
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import numpy as np
import pytest
from meanwhile import serving

from trireme.core.tensor import Tensor
from trireme.tools.client import http_client
from trireme.tools.client.connect import ConnectionOptions, connect, connect_http
from trireme.tools.client.errors import (
    AnswerError,
    ClientError,
    InputError,
    UnknownModelError,
    UnreachableError,
    answer_error,
)
from trireme.tools.client.failures import connection_failure
from trireme.tools.client.http_bodies import decode_answer, decode_flat, encode_call, encode_flat, event_answer
from trireme.tools.client.http_client import HttpClient
from trireme.tools.client.messages import InferCall
from trireme.tools.client.model import nearest, served_model
from trireme.tools.perf.address import parse_address

CALL = InferCall(
    "m",
    "",
    (Tensor.from_numpy("A", np.array([1, 2], np.int32)), Tensor.from_numpy("T", np.array([b"x"], np.object_))),
    {"max_tokens": 3},
)


def test_inputs_are_binary_behind_the_document() -> None:
    body, length = encode_call(CALL, is_binary_answer=True)
    document = json.loads(body[:length])
    assert body[length:] == b"\1\0\0\0\2\0\0\0" + b"\1\0\0\0x"
    assert [entry["parameters"] for entry in document["inputs"]] == [{"binary_data_size": 8}, {"binary_data_size": 5}]
    assert document["parameters"] == {"max_tokens": 3, "binary_data_output": True}


def test_answer_in_both_forms() -> None:
    head = json.dumps(
        {
            "model_name": "m",
            "model_version": "2",
            "outputs": [
                {"name": "J", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]},
                {"name": "B", "datatype": "INT16", "shape": [1], "parameters": {"binary_data_size": 2}},
                {"name": "S", "datatype": "BYTES", "shape": [1, 2], "data": [["a", "b"]]},
            ],
        }
    ).encode()
    answer = decode_answer(head + b"\7\0", len(head))
    assert [tensor.to_numpy().tolist() for tensor in answer.outputs] == [[[1.5, 2]], [7], [[b"a", b"b"]]]
    with pytest.raises(AnswerError, match="'B' is cut short"):
        decode_answer(head + b"\7", len(head))


@pytest.mark.parametrize(
    "content",
    [
        b"<html>",
        b"[]",
        b"7",
        b'{"outputs": 7}',
        b'{"outputs": [7]}',
        b'{"outputs": [{"name": "A"}]}',
        b'{"outputs": [{"name": "A", "datatype": "FP99", "shape": [1], "data": [1]}]}',
        b'{"outputs": [{"name": "A", "datatype": "FP32", "shape": [1], "data": ["x"]}]}',
        b'{"outputs": [], "parameters": [1]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_told(content: bytes) -> None:
    for decode in (lambda: decode_answer(content, None), lambda: event_answer(content)):
        with pytest.raises(AnswerError, match="the answer cannot be read: "):
            decode()


@pytest.mark.parametrize("event", [b"<html>", b"[1]", b"7"])
def test_what_is_no_event_of_generate_is_told(event: bytes) -> None:
    with pytest.raises(AnswerError, match="the answer cannot be read: "):
        decode_flat(event, CALL)


@pytest.mark.parametrize("header", [("X-A", "a\r\nB: c"), ("X A", "k3y"), ("X-A", "\u65e5"), ("", "k3y")])
def test_headers_that_cannot_be_sent_are_refused(header: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="has characters that no header may have") as refused:
        connect(ConnectionOptions(headers=(header,)))
    assert header[1] not in str(refused.value)  # which may be a key
    connect(ConnectionOptions(headers=(("X-A", "caf\u00e9\t b"),)))


@pytest.mark.parametrize(
    "call",
    [
        InferCall("m", "", (), {"p": 2**70}),
        InferCall("m", "", (), {"p": -(2**70)}),
        InferCall("m", "", (Tensor("A", "UINT8", (2**70,), b""),)),
    ],
)
def test_what_grpc_cannot_carry_is_told(call: InferCall) -> None:
    client = connect(ConnectionOptions("127.0.0.1:9", is_grpc=True))
    with pytest.raises(InputError, match="the request cannot be sent over gRPC: "):
        client.infer(call)


def test_event_that_is_an_error_is_raised() -> None:
    with pytest.raises(AnswerError, match="no sails"):
        event_answer(b'{"error": "no sails"}')


def test_flat_form_of_generate() -> None:
    assert json.loads(encode_flat(CALL)) == {"max_tokens": 3, "A": [1, 2], "T": "x"}
    answer = decode_flat(b'{"model_name": "m", "model_version": "1", "text_output": "We", "n": [1, 2]}', CALL)
    assert [(tensor.name, tensor.to_numpy().tolist()) for tensor in answer.outputs] == [
        ("text_output", [b"We"]),
        ("n", [1, 2]),
    ]


def test_nearest_name_or_all() -> None:
    assert nearest("addr", ["adder", "shout"]) == "; did you mean 'adder'?"
    assert nearest("x", ["adder", "shout"]) == "; there are: adder, shout"
    assert nearest("x", []) == "; it has none"


@pytest.mark.parametrize(
    ("text", "is_not_found", "is_unknown"),
    [
        ("Request for unknown model: 'm' is not found", True, True),
        ("Request for unknown model: 'm' has no available versions", False, True),
        ("requested model 'm' is not available", False, True),
        ("file 'x' is not found", False, False),
        ("the model failed", True, False),
    ],
)
def test_unknown_models_are_told_apart(text: str, is_not_found: bool, is_unknown: bool) -> None:
    assert isinstance(answer_error(text, is_not_found), UnknownModelError) == is_unknown


class PlainServer:
    """A server of the v2 protocol without Triton's configurations."""

    place = "http://there"

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        return {"name": model, "inputs": [{"name": "A", "datatype": "FP32", "shape": [-1, 2]}], "outputs": []}

    def config(self, model: str, version: str) -> dict[str, Any]:
        raise AnswerError("no such path")


def test_server_without_configurations_is_taken_at_its_metadatas_word() -> None:
    server: Any = PlainServer()
    model = served_model(server, "m", "")
    assert (model.inputs[0].shape, model.has_batches, model.is_decoupled) == ((-1, 2), False, False)


@pytest.mark.parametrize(
    ("error", "is_grpc", "words"),
    [
        (ConnectionRefusedError(), False, "connection refused\n'trireme serve FOLDER' starts a server"),
        (socket.gaierror(-2, "Name or service not known"), False, "there is no host of this name"),
        (TimeoutError(), True, "did not answer within 5 s"),
        (http.client.BadStatusLine("\0\0"), False, "does not speak HTTP/1.1\nif this is the port for gRPC"),
        (http.client.RemoteDisconnected("gone"), False, "broke"),
        (ConnectionResetError("reset"), True, "if this is the port for HTTP, ask without --grpc"),
    ],
)
def test_failures_say_what_to_look_at(error: Exception, is_grpc: bool, words: str) -> None:
    failure: ClientError = connection_failure(error, "there", 5.0, is_grpc)
    assert words in str(failure)
    assert failure.exit_code == 3


class _Frames(StreamRequestHandler):
    """Speaks HTTP/2, whatever is asked."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\r\n")


def test_the_port_for_grpc_is_told_with_advice_that_the_command_takes() -> None:
    with serving(ThreadingTCPServer(("127.0.0.1", 0), _Frames)) as server:
        options = ConnectionOptions(f"127.0.0.1:{server.server_address[1]}")
        with pytest.raises(ClientError, match="if this is the port for gRPC, ask with --grpc"):
            connect(options).index()
        with pytest.raises(ClientError, match="if this is the port for gRPC, give the one for HTTP"):
            connect_http(options).index()


@contextmanager
def answering(head: str, body: bytes, is_endless: bool = False) -> Iterator[HttpClient]:
    """A client of a server that says this to everything, and the body without an end until nobody listens."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))  # an end before it would reset the connection
            self.wfile.write(f"HTTP/1.1 {head}\r\n\r\n".encode())
            with suppress(OSError):
                self.wfile.write(body)
                while is_endless:
                    self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        yield HttpClient(parse_address(f"127.0.0.1:{server.server_port}", 8000), (), None, 30.0)


CHUNK = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("200 OK\r\nContent-Length: 9999999999999", b" " * (1 << 16)),
        ("200 OK\r\nTransfer-Encoding: chunked", CHUNK),
        ("200 OK\r\nConnection: close", b" " * (1 << 16)),
        ("400 Bad Request\r\nTransfer-Encoding: chunked", CHUNK),
    ],
)
def test_an_answer_without_an_end_is_not_read_to_it(head: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_MOST_JSON_BYTES", 4 << 20)
    with answering(head, body, is_endless=True) as client, pytest.raises(AnswerError, match="is longer than 4 MiB"):
        client.metadata("m", "")


def test_answers_with_tensors_may_be_longer_than_those_about_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_MOST_JSON_BYTES", 1 << 20)
    content = b" " * (3 << 20) + b"{}"
    with answering(f"200 OK\r\nContent-Length: {len(content)}", content) as client:
        assert client.post("/v2/models/m/infer", b"") == content
        with pytest.raises(AnswerError, match="is longer than 1 MiB"):
            client.metadata("m", "")
    with (
        answering("200 OK\r\nContent-Length: 9999999999999", b"") as client,
        pytest.raises(AnswerError, match="is longer than 2048 MiB"),
    ):
        client.post("/v2/models/m/infer", b"")


def test_a_large_answer_is_in_memory_once() -> None:
    size = 32 << 20
    output = {"name": "A", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
    text = json.dumps({"outputs": [output]}).encode()
    body = text + bytes(size)
    head = f"200 OK\r\nContent-Length: {len(body)}\r\nInference-Header-Content-Length: {len(text)}"
    with answering(head, body) as client:
        tracemalloc.start()
        try:
            (tensor,) = client.infer(CALL).outputs
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert tensor.to_numpy().shape == (size,)
    assert peak < 1.6 * size


@pytest.mark.parametrize(
    ("head", "body", "words"),
    [
        ("200 OK\r\nContent-Length: 9", b"{}", "the connection to .* broke: IncompleteRead"),
        ("200 OK\r\nTransfer-Encoding: chunked", b"9\r\n{}", "the connection to .* broke: IncompleteRead"),
        ("200 OK\r\nContent-Length: 200000", b"[" * 200_000, "is no server of the v2 protocol"),
    ],
)
def test_an_answer_that_breaks_off_or_is_no_json_is_told(head: str, body: bytes, words: str) -> None:
    with answering(head, body) as client, pytest.raises(UnreachableError, match=words):
        client.metadata("m", "")


@pytest.mark.parametrize("length", ["-1", "-9999999999999", "x", "1_0"])
def test_an_answer_whose_length_is_none_is_not_waited_for(length: str) -> None:
    with answering(f"200 OK\r\nContent-Length: {length}", b" " * 512, is_endless=True) as client:
        with pytest.raises(AnswerError, match=r"announces a length of .*, which is no number of bytes"):
            client.metadata("m", "")
        with pytest.raises(AnswerError, match=r"announces a length of .*, which is no number of bytes"):
            client.post("/v2/models/m/infer", b"")


@pytest.mark.parametrize("length", ["-1", "x", "1_0", "9" * 5000])
def test_a_length_of_the_document_that_is_none_is_told(length: str) -> None:
    head = f"200 OK\r\nContent-Length: 2\r\nInference-Header-Content-Length: {length}"
    with answering(head, b"{}") as client, pytest.raises(AnswerError, match="which is no number") as told:
        client.post("/v2/models/m/infer", b"")
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("status", "kind", "body", "asked"),
    [
        (400, "application/json", b'{"error":"model my_decoupled failed"}', ["/infer"]),
        (200, "text/event-stream", b'data: {"outputs":[]}\n\ndata: {"error":"my_decoupled broke"}\n\n', ["/infer"]),
        (200, "text/event-stream", b'data: {"error":"my_decoupled broke"}\n\n', ["/infer"]),
        (
            400,
            "application/json",
            b'{"error":"HTTP end point doesn\'t support models with decoupled transaction policy"}',
            ["/infer", "/generate_stream"],
        ),
        (200, "application/json", b"{}", ["/infer", "/generate_stream"]),
    ],
    ids=["a name", "behind an event", "an event", "a refusal", "no stream"],
)
def test_a_stream_is_asked_for_in_another_way_where_the_first_is_refused_alone(
    status: int, kind: str, body: bytes, asked: list[str]
) -> None:
    paths = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path.removeprefix("/v2/models/my_decoupled"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        client = connect(ConnectionOptions(f"127.0.0.1:{server.server_port}"))
        with pytest.raises(AnswerError):
            list(client.stream(InferCall("my_decoupled", "", ())))
    assert paths == asked
