"""Memory that clients may take, with small limits: what does not fit is refused by the limit's name."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import raw_grpc as grpc
from attack_watch import resident_bytes
from attacked_models import serves, write_models
from attacks import http_request
from raw_grpc import RawGrpc
from running_server import RunningServer

MEGABYTE = 1 << 20
LIMITS = ("--max-inflight-bytes=64MiB", "--max-connection-inflight-bytes=32MiB", "--http-max-binary-size=48MiB")
IN_ALL, OF_CONNECTION = "--max-inflight-bytes", "--max-connection-inflight-bytes"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("limited")
    write_models(folder)
    with RunningServer(folder, *LIMITS, "--max-queue-size=3") as running:
        running.wait_until_listening()
        yield running
        assert serves(running.ports["http"])
        assert "Traceback" not in running.log


def binary_request(model: str, size_bytes: int) -> tuple[bytes, bytes]:
    """Head and document, and the string that follows them."""
    data = struct.pack("<I", size_bytes - 4) + bytes(size_bytes - 4)
    entry = {"name": "IN", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(data)}}
    text = json.dumps({"inputs": [entry]}).encode()
    raw = http_request(f"/v2/models/{model}/infer", text + data, f"Inference-Header-Content-Length: {len(text)}")
    return raw[: len(raw) - len(data)], data


def ask(server: RunningServer, raw: bytes) -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(raw)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    received = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in received and (part := connection.recv(65536)):
            received += part
    return int(received.split()[1]), received


def grpc_error(client: RawGrpc, stream: int) -> bytes:
    block = client.read_until(grpc.HEADERS, stream)
    assert block is not None
    return block


def test_a_body_that_never_fits_is_refused_by_its_head(server: RunningServer) -> None:
    for size, flag in ((40, OF_CONNECTION), (50, "--http-max-binary-size")):
        head, _ = binary_request("text", size * MEGABYTE)
        status, answer = ask(server, head)
        assert (status, flag.encode() in answer) == (413, True)


def test_what_fits_is_served(server: RunningServer) -> None:
    for _ in range(4):
        assert ask(server, b"".join(binary_request("slow", 24 * MEGABYTE)))[0] == 200


def test_half_received_bodies_wait_for_room_and_are_refused(server: RunningServer) -> None:
    before = resident_bytes(server.process.pid)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30))
            head, data = binary_request("text", 30 * MEGABYTE)
            client.settimeout(8)
            with contextlib.suppress(OSError):
                client.sendall(head + data[:-1])  # all but the end: nobody gives room to the others
            clients.append(client)
        assert resident_bytes(server.process.pid) < before + 140 * MEGABYTE
        status, answer = read_answer(clients[-1])
        assert (status, IN_ALL.encode() in answer) == (503, True)
    server.until(lambda: ask(server, b"".join(binary_request("slow", 24 * MEGABYTE)))[0] == 200)


def test_what_inflates_beyond_the_limit_is_refused(server: RunningServer) -> None:
    text = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":["%b"]}]}' % (b"x" * (40 * MEGABYTE))
    status, answer = ask(server, http_request("/v2/models/text/infer", gzip.compress(text), "Content-Encoding: gzip"))
    assert (status, OF_CONNECTION.encode() in answer) == (413, True)


@pytest.mark.parametrize("method", [grpc.INFER, grpc.STREAM_INFER])
def test_messages_over_grpc_are_refused_after_a_while(server: RunningServer, method: str) -> None:
    content = grpc.message(grpc.infer_request("text", "BYTES", 1, bytes(40 * MEGABYTE)))
    with RawGrpc(server.ports["grpc"]) as client:
        client.socket.settimeout(8)
        with contextlib.suppress(OSError):
            client.send(grpc.headers(1, method), grpc.data(1, content))
        client.socket.settimeout(30)
        block = grpc_error(client, 1)
        assert b"grpc-status\x018" in block
        assert OF_CONNECTION.encode() in block


def test_an_answer_that_does_not_fit_is_an_error(server: RunningServer) -> None:
    content = grpc.message(grpc.infer_request("large", "INT32", 1, struct.pack("<i", 40 * MEGABYTE)))
    with RawGrpc(server.ports["grpc"]) as client:
        client.send(grpc.headers(1, grpc.INFER), grpc.data(1, content))
        block = grpc_error(client, 1)
        assert b"grpc-status\x018" in block
        assert OF_CONNECTION.encode() in block
    document = {
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [40 * MEGABYTE]}],
        "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
    }
    status, answer = ask(server, http_request("/v2/models/large/infer", json.dumps(document).encode()))
    assert (status, OF_CONNECTION.encode() in answer) == (503, True)


def test_the_queue_of_a_model_has_a_bound(server: RunningServer) -> None:
    body: Any = {"inputs": [{"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}
    raw = http_request("/v2/models/slow/infer", json.dumps(body).encode())
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30))
            for _ in range(8)
        ]
        for client in clients:
            client.sendall(raw)
        answers = [read_answer(client) for client in clients]
    refused = [answer for status, answer in answers if status == 503]
    assert 3 <= len(refused) <= 5
    assert all(b"--max-queue-size" in answer for answer in refused)
    assert sum(status == 200 for status, _ in answers) == 8 - len(refused)
