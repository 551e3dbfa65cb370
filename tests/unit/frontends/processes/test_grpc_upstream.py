"""Calls that a front-end process passes on, at both ends of the connection that they go over."""

from __future__ import annotations

from typing import Any, cast

from trireme.core.elements import Buffer
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.plan import CallPlan
from trireme.frontends.processes.grpc_upstream import Upstream
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.headers import RequestHeaders, encode_block
from trireme.protocol.http2.limits import Http2Limits
from trireme.protocol.http2.stream import Stream


class Echo:
    """Answers each call with what it has asked, as the server process would."""

    def __init__(self) -> None:
        self.http2 = Http2Connection(self, Http2Limits())
        self._asked: dict[int, bytes] = {}

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        self._asked[stream.id] = stream.headers.path

    def data_arrived(self, stream: Stream, data: Buffer, is_ended: bool) -> None:
        self._asked[stream.id] += bytes(data)
        if is_ended:
            answer = self._asked.pop(stream.id)
            self.http2.outbound.send_headers(stream, encode_block(((b":status", b"200"),)), False)
            self.http2.outbound.send_data(stream, [answer], len(answer))
            self.http2.outbound.send_trailers(stream, encode_block(((b"grpc-status", b"0"),)))

    def stream_reset(self, stream: Stream) -> None:
        self._asked.pop(stream.id, None)

    def ping_arrived(self) -> None:
        pass

    def ping_answered(self) -> None:
        pass


class Client:
    """The client's connection: notes what each of its streams gets."""

    def __init__(self) -> None:
        self.http2 = self.outbound = self
        self.got: dict[int, bytes] = {}
        self.ended: list[int] = []

    def send_headers(self, stream: Stream, block: bytes, is_last: bool) -> None:
        self.got[stream.id] = b""

    def send_data(self, stream: Stream, pieces: list[bytes], size: int) -> None:
        self.got[stream.id] += b"".join(pieces)

    def send_trailers(self, stream: Stream, block: bytes) -> None:
        self.ended.append(stream.id)

    def schedule_flush(self) -> None:
        pass

    def stop_accepting(self) -> None:
        raise AssertionError("the server process has found a fault")


def test_calls_may_be_passed_on_in_another_order_than_they_came() -> None:
    """One is passed on when its headers come, another when the message is there that the process does not answer."""
    client, server = Client(), Echo()
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: server.http2.receive(data))
    calls: dict[int, Any] = {}
    for number in (5, 1, 9, 3):
        headers = RequestHeaders([])
        headers.method, headers.path = b"POST", b"/service/%d:" % number
        calls[number] = upstream.open(Stream(number, headers, 0), cast(CallPlan, None))
    calls[9].abandon()
    for number in (3, 5, 1):
        calls[number].receive(b"asked by %d" % number, True)
    upstream.received(b"".join(server.http2.outbound.pieces))
    assert server.http2.close_reason == ""
    assert client.got == {number: b"/service/%d:asked by %d" % (number, number) for number in (3, 5, 1)}
    assert sorted(client.ended) == [1, 3, 5]
