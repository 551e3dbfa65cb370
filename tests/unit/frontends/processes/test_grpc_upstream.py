"""Calls that a front-end process passes on, at both ends of the connection that they go over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError, stopping_error, unanswered_error
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.plan import CallPlan
from trireme.frontends.grpc.status import STOPPING
from trireme.frontends.processes.grpc_upstream import Upstream
from trireme.protocol.grpc_frames import UNAVAILABLE, trailers, trailers_only
from trireme.protocol.http2 import wire
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.headers import RequestHeaders, encode_block
from trireme.protocol.http2.limits import Http2Limits
from trireme.protocol.http2.stream import Stream
from trireme.protocol.http2.wire import REFUSED_STREAM


class Echo:
    """Answers each call with what it has asked, as the server process would."""

    def __init__(self) -> None:
        self.http2 = Http2Connection(self, Http2Limits(), lambda: 1)
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

    def __init__(self, is_stopping: bool = False) -> None:
        self.http2 = self.outbound = self
        self.context = SimpleNamespace(is_stopping=is_stopping)
        self.got: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.last_blocks: dict[int, bytes] = {}
        self.resets: dict[int, int] = {}

    def send_headers(self, stream: Stream, block: bytes, is_last: bool) -> None:
        self.got[stream.id] = b""
        if is_last:
            self.last_blocks[stream.id] = block

    def reset(self, stream: Stream, code: int) -> None:
        self.resets[stream.id] = code

    def send_data(self, stream: Stream, pieces: list[bytes], size: int) -> None:
        self.got[stream.id] += b"".join(pieces)

    def send_trailers(self, stream: Stream, block: bytes) -> None:
        self.ended.append(stream.id)
        self.last_blocks[stream.id] = block

    def schedule_flush(self) -> None:
        pass

    def stop_accepting(self) -> None:
        raise AssertionError("the server process has found a fault")


def asked_on(number: int) -> Stream:
    headers = RequestHeaders([])
    headers.method, headers.path = b"POST", b"/service/%d:" % number
    return Stream(number, headers, 0)


def test_calls_may_be_passed_on_in_another_order_than_they_came() -> None:
    """One is passed on when its headers come, another when the message is there that the process does not answer."""
    client, server = Client(), Echo()
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: server.http2.receive(data))
    calls: dict[int, Any] = {}
    for number in (5, 1, 9, 3):
        calls[number] = upstream.open(asked_on(number), cast(CallPlan, None))
    calls[9].abandon()
    for number in (3, 5, 1):
        calls[number].receive(b"asked by %d" % number, True)
    upstream.received(b"".join(server.http2.outbound.pieces))
    assert server.http2.close_reason == ""
    assert client.got == {number: b"/service/%d:asked by %d" % (number, number) for number in (3, 5, 1)}
    assert sorted(client.ended) == [1, 3, 5]


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("refusal", [None, stopping_error("4")])
def test_a_call_that_a_server_which_ends_did_not_look_at_is_told_that_it_stops(
    refusal: ServingError | None, is_late: bool
) -> None:
    client = Client(is_stopping=True)
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: None)
    if is_late:
        upstream.close()
    upstream.open(asked_on(1), cast(CallPlan, None), refusal)
    upstream.close()
    words = STOPPING if refusal is None else refusal.message
    assert client.last_blocks == {1: trailers_only(UNAVAILABLE, words)}
    assert client.resets == {}


def test_a_call_that_is_half_answered_when_the_server_ends_is_told_so() -> None:
    client = Client(is_stopping=True)
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: None)
    call = upstream.open(asked_on(1), cast(CallPlan, None), stopping_error("4"))
    call.headed(encode_block(((b":status", b"200"),)), False)
    upstream.close()
    assert client.last_blocks == {1: trailers(UNAVAILABLE, unanswered_error().message)}


def test_a_call_on_a_connection_that_alone_ends_may_be_asked_again() -> None:
    """The server goes on: nobody is told that it stops."""
    client = Client()
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: None)
    upstream.open(asked_on(1), cast(CallPlan, None), stopping_error("4"))
    upstream.close()
    upstream.open(asked_on(3), cast(CallPlan, None))
    assert client.resets == {1: REFUSED_STREAM, 3: REFUSED_STREAM}
    assert client.last_blocks == {}


def test_a_window_is_opened_once_for_each_call_whose_answer_was_taken() -> None:
    """However many others are open: a client may have thousands of calls, and each of its reads looks."""
    client, sent = Client(), []
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: sent.append(data))
    streams = [asked_on(number) for number in range(1, 9, 2)]
    calls = [upstream.open(stream, cast(CallPlan, None)) for stream in streams]
    head = encode_block(((b":status", b"200"),))
    for call in calls[1:]:
        upstream.received(wire.frame(wire.HEADERS, wire.END_HEADERS, call.own_id, head))
        upstream.received(wire.frame(wire.DATA, 0, call.own_id, bytes(100)))
    streams[1].queued_bytes = 100  # the client has not taken it
    calls[2].abandon()
    sent.clear()
    upstream.open_windows()
    assert sent == [wire.window_update_frame(calls[3].own_id, 100)]
    streams[1].queued_bytes = 0
    for _ in range(2):
        upstream.open_windows()
    assert sent[1:] == [wire.window_update_frame(calls[1].own_id, 100)]
    assert not upstream._answered


def test_large_answers_come_in_frames_that_need_little_putting_together() -> None:
    client, server = Client(), Echo()
    upstream = Upstream(cast(GrpcConnection, client), 1, lambda data: server.http2.receive(data))
    asked = bytes(1 << 20)
    upstream.open(asked_on(1), cast(CallPlan, None)).receive(asked, True)
    longest, pieces = 0, server.http2.outbound.pieces
    while pieces:
        answered = b"".join(pieces)
        pieces.clear()
        for start in range(0, len(answered), 1 << 16):
            upstream.received(answered[start : start + (1 << 16)])
            longest = max(longest, len(upstream._partial))
    assert len(client.got[1]) > len(asked)
    assert client.ended == [1]
    assert longest <= (1 << 18) + wire.FRAME_HEAD_BYTES
