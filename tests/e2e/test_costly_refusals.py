"""Requests that are long to read and refused, one behind the other: after a few of them a connection reads no more."""

from __future__ import annotations

import gzip
import http.client
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest
import raw_grpc as grpc
from attacked_models import serves, write_models
from attacks import MILLION, http_request
from hpack import Decoder
from raw_grpc import RawGrpc
from running_server import RunningServer

BAD_JSON = b'{"inputs":[' + b'{"":0},' * 2000 + b"x]}"
PARSE_ERROR = b"failed to parse the request JSON buffer"
NO_MORE = "took long to read and were refused"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("refusing")
    write_models(folder)
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running
        assert serves(running.ports["http"])
        assert "Traceback" not in running.log


def test_pipelined_requests_behind_refused_ones_are_not_read(server: RunningServer) -> None:
    body = gzip.compress(BAD_JSON, 9)
    one = http_request("/v2/models/text/infer", body, "Content-Encoding: gzip")
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30) as connection:
        connection.sendall(one * 200)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    statuses = re.findall(rb"HTTP/1.1 (\d+)", received)
    assert 16 <= received.count(PARSE_ERROR) < 100
    assert received.count(NO_MORE.encode()) == statuses.count(b"503") > 0
    assert len(statuses) < 100  # what was not begun has no answer but the end of the connection


def test_requests_one_at_a_time_are_all_read(server: RunningServer) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=30)) as connection:
        for _ in range(40):
            connection.request("POST", "/v2/models/text/infer", BAD_JSON)
            answer = connection.getresponse()
            assert PARSE_ERROR in answer.read()
            assert not answer.will_close


def test_calls_behind_refused_ones_are_not_read_and_good_ones_answered(server: RunningServer) -> None:
    bad = grpc.message(grpc.field(1, b"text") + grpc.field(5, b"") * 250_000, is_gzipped=True)
    good = grpc.message(grpc.infer_request("slow", "BYTES", 1, struct.pack("<I", 1) + b"x"))
    with RawGrpc(server.ports["grpc"]) as client:
        client.send(grpc.headers(1, grpc.INFER) + grpc.data(1, good))
        client.send(*(grpc.headers(s, grpc.INFER, "gzip") + grpc.data(s, bad) for s in range(3, 403, 2)))
        ends = _ends(client)
    assert ends.pop(1)["grpc-status"] == "0"
    refused = [fields for fields in ends.values() if fields["grpc-status"] == "3"]
    unread = [fields for fields in ends.values() if fields["grpc-status"] == "14"]
    assert 16 <= len(refused) < 40
    assert len(refused) + len(unread) == len(ends) == 200
    assert all(NO_MORE in fields["grpc-message"] for fields in unread)


def test_another_connection_reads_on(server: RunningServer) -> None:
    bad = grpc.message(grpc.field(1, b"text") + grpc.field(5, b"") * 250_000, is_gzipped=True)
    good = grpc.message(grpc.infer_request("slow", "BYTES", 40_000, bytes(4 * 40_000)), is_gzipped=True)
    with RawGrpc(server.ports["grpc"]) as other, RawGrpc(server.ports["grpc"]) as client:
        client.send(*(grpc.headers(s, grpc.INFER, "gzip") + grpc.data(s, bad) for s in range(1, 101, 2)))
        other.send(grpc.headers(1, grpc.INFER, "gzip") + grpc.data(1, good))
        assert len(_ends(client)) == 50
        assert _ends(other, 1)[1]["grpc-status"] == "0"


def _ends(client: RawGrpc, count: int = MILLION) -> dict[int, dict[str, str]]:
    """The trailers of so many calls, or of those there are until the server closes."""
    decoder: Decoder = Decoder()
    ends: dict[int, dict[str, str]] = {}
    while len(ends) < count and (found := client.read_frame()) is not None:
        kind, flags, stream, payload = found
        if kind == grpc.HEADERS:
            fields = {str(name): str(value) for name, value in decoder.decode(payload)}
            if flags & grpc.END_STREAM:
                ends[stream] = fields
    return ends
