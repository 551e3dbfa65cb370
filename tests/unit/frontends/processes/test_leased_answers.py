"""Answers of workers that a front-end process has: what does not fit beside what its clients have not read."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import raw_grpc as grpc

from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.inflight import LARGE_ANSWER_BYTES, InflightBytes
from trireme.frontends.processes.client_connection import ClientConnection
from trireme.frontends.processes.grpc_relay import GrpcClientConnection, GrpcRelay
from trireme.frontends.processes.http_relay import HttpClientConnection, HttpRelay
from trireme.protocol.http2 import wire
from trireme.server.server import InferenceServer

NUMBER = 7
DOCUMENT = json.dumps(
    {
        "inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}],
        "parameters": {"binary_data_output": True},
    }
).encode()
OVER_HTTP = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%b" % (
    len(DOCUMENT),
    DOCUMENT,
)
OVER_GRPC = (
    wire.PREFACE
    + grpc.settings((wire.SETTING_INITIAL_WINDOW_SIZE, 8 << 20))
    + grpc.window_update(0, 8 << 20)
    + grpc.headers(1, grpc.INFER)
    + grpc.data(1, grpc.message(grpc.infer_request("echo", "INT32", 1, bytes(4))))
)
FITS, FITS_NOT = (
    {"http": b"HTTP/1.1 200 ", "grpc": b"grpc-status\x010"},
    {"http": b" 503 ", "grpc": b"grpc-status\x018"},
)


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


async def answer_to(protocol: str, size_bytes: int, inflight: InflightBytes) -> bytes:
    """What a client reads where a leased worker answers with so much."""

    def start(request: InferenceRequest) -> bool:
        request.respond(InferenceResponse([Tensor("OUT", "UINT8", (size_bytes,), bytes(size_bytes))]))
        return True

    link = SimpleNamespace(send=lambda message: None, send_bytes=lambda *message: None, is_full=False)
    owner: Any = SimpleNamespace(link=link, connections={}, used=set(), calls={}, leased={("echo", ""): start})
    plain = HttpRelay(HttpFrontendOptions(), inflight)
    server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
    relay = GrpcRelay(owner, GrpcFrontendOptions(), server, inflight)
    is_http = protocol == "http"
    connection: ClientConnection
    connection = HttpClientConnection(owner, NUMBER, plain) if is_http else GrpcClientConnection(owner, NUMBER, relay)
    owner.connections[NUMBER] = connection
    transport = Transport()
    connection.connection_made(transport)
    connection.data_received(OVER_HTTP if is_http else OVER_GRPC)
    await asyncio.sleep(0)
    return transport.written


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_large_answer_of_a_leased_worker_without_room_is_refused(protocol: str) -> None:
    def written(size_bytes: int, inflight: InflightBytes) -> bytes:
        return asyncio.run(answer_to(protocol, size_bytes, inflight))

    size = 2 * LARGE_ANSWER_BYTES
    assert FITS[protocol] in written(size, InflightBytes(2 * size, 2 * size))
    refused = written(size, InflightBytes(2 * size, size // 2))
    assert FITS_NOT[protocol] in refused
    assert b"--max-connection-inflight-bytes" in refused
    refused = written(size, InflightBytes(size // 2, 2 * size))
    assert FITS_NOT[protocol] in refused
    assert b"--max-inflight-bytes" in refused
    assert FITS[protocol] in written(LARGE_ANSWER_BYTES // 2, InflightBytes(10, 10)), "such are not looked at"
