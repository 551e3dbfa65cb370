"""Flow control of an HTTP/2 connection: work in proportion to what is sent, and budgets for those who only ask."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.protocol.http2 import outbound as outbound_module
from trireme.protocol.http2 import wire
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.headers import encode_block
from trireme.protocol.http2.limits import Http2Limits
from trireme.protocol.http2.stream import Stream

BLOCK = encode_block([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/m"), (b"content-type", b"a/b")])

interpreted_only = pytest.mark.skipif(
    not str(outbound_module.__file__).endswith(".py"), reason="compiled methods call each other directly"
)


class Peer:
    """A machine under test that keeps its streams, in front of a clock that stands still."""

    def __init__(self, window: int = 65_535) -> None:
        self.streams: dict[int, Stream] = {}
        self.machine = Http2Connection(self, Http2Limits(), lambda: 0)
        self.feed(wire.PREFACE + window_settings(window))

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        self.streams[stream.id] = stream

    def data_arrived(self, stream: Stream, data: Any, is_ended: bool) -> None:
        pass

    def stream_reset(self, stream: Stream) -> None:
        pass

    def ping_arrived(self) -> None:
        pass

    def ping_answered(self) -> None:
        pass

    def feed(self, *parts: bytes) -> list[tuple[int, bytes]]:
        """Streams and payloads of the DATA that follows."""
        self.machine.receive(b"".join(parts))
        while self.machine.has_backlog:
            self.machine.receive(b"")
        return self.sent()

    def open(self, count: int) -> None:
        self.feed(*(headers(number) for number in range(1, 2 * count, 2)))

    def send(self, number: int, data: bytes) -> None:
        self.machine.outbound.send_data(self.streams[number], [data], len(data))

    def sent(self) -> list[tuple[int, bytes]]:
        pieces = self.machine.outbound.pieces
        raw, position, found = b"".join(pieces), 0, []
        pieces.clear()
        while position < len(raw):
            high, low, kind, _, stream = wire.FRAME_HEAD.unpack_from(raw, position)
            size = high << 16 | low
            if kind == wire.DATA:
                found.append((stream, raw[position + 9 : position + 9 + size]))
            position += 9 + size
        return found


def headers(stream: int) -> bytes:
    return wire.frame(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, stream, BLOCK)


def window_settings(*sizes: int) -> bytes:
    return wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, size) for size in sizes])


def waiting_calls(count: int) -> Peer:
    """A peer that has asked for so many responses and lets nothing of them through."""
    peer = Peer(window=0)
    peer.open(count)
    for number in peer.streams:
        peer.send(number, b"abc")
    return peer


@interpreted_only
def test_opening_the_connection_does_not_touch_streams_that_wait_for_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = waiting_calls(1000)
    outbound = type(peer.machine.outbound)
    send_some, asked = outbound._send_some, []

    def note(self: Any, stream: Stream, limit: int) -> bool:
        asked.append(stream.id)
        return send_some(self, stream, limit)

    monkeypatch.setattr(outbound, "_send_some", note)
    peer.feed(wire.window_update_frame(0, 1) * 50)
    assert asked == []
    assert peer.feed(wire.window_update_frame(7, 2)) == [(7, b"ab")]
    assert asked == [7]


@interpreted_only
def test_only_the_last_of_repeated_settings_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = waiting_calls(10)
    changes: list[int] = []
    monkeypatch.setattr(
        type(peer.machine.outbound), "change_initial_window", lambda self, size: changes.append(size) or 0
    )
    peer.feed(window_settings(*range(100)))
    assert changes == [99]


def test_a_settings_frame_with_too_many_entries_ends_the_connection() -> None:
    peer = Peer()
    peer.feed(window_settings(*([1] * 129)))
    assert peer.machine.close_reason == "a SETTINGS frame has too many entries"


def test_a_larger_initial_window_gets_waiting_streams_going_in_turn() -> None:
    peer = waiting_calls(3)
    assert peer.feed(window_settings(2)) == [(1, b"ab"), (3, b"ab"), (5, b"ab")]
    assert peer.feed(window_settings(1)) == []
    assert peer.feed(wire.window_update_frame(3, 2)) == [(3, b"c")]
    assert peer.feed(window_settings(9)) == [(1, b"c"), (5, b"c")]


def test_getting_many_streams_going_again_and_again_has_its_price() -> None:
    peer = waiting_calls(4000)
    peer.feed(*(window_settings(number % 2) for number in range(200)))
    assert peer.machine.close_reason == "too many control frames"


def test_an_initial_window_that_opens_one_stream_too_far_is_an_error() -> None:
    peer = Peer()
    peer.open(1)
    peer.feed(wire.window_update_frame(1, wire.LARGEST_WINDOW - 65_535), window_settings(65_535))
    assert not peer.machine.is_closed
    peer.feed(window_settings(65_536))
    assert peer.machine.close_reason == "INITIAL_WINDOW_SIZE opens a window beyond 2^31-1"


def test_window_updates_have_a_budget_that_reading_fills() -> None:
    peer = Peer()
    peer.feed(wire.window_update_frame(0, 1) * 30_000)
    assert peer.machine.close_reason == "too many window updates"
    peer = Peer(window=1 << 30)
    peer.open(1)
    peer.feed(wire.window_update_frame(0, 1 << 30))
    for _ in range(30):
        peer.send(1, bytes(1 << 20))
        peer.feed(wire.window_update_frame(0, 1) * 1000)
    assert not peer.machine.is_closed


def test_a_client_that_opens_windows_with_every_small_message_is_served_on() -> None:
    """As clients in C++ do: three window updates for each answer of some bytes, as fast as the server answers."""
    peer = Peer(window=65_535)
    for number in range(20_000):
        stream_id = 2 * number + 1
        peer.feed(headers(stream_id))
        peer.send(stream_id, b"0123456789")
        peer.machine.outbound.send_trailers(peer.streams.pop(stream_id), BLOCK)
        peer.feed(wire.window_update_frame(stream_id, 5) * 2, wire.window_update_frame(0, 10))
        assert not peer.machine.is_closed, (number, peer.machine.close_reason)


def test_windows_that_are_opened_byte_by_byte_use_the_budget_up() -> None:
    peer = Peer(window=0)
    peer.open(1)
    peer.send(1, bytes(100_000))
    peer.feed(wire.window_update_frame(1, 1) * 30_000)
    assert peer.machine.close_reason == "too many window updates"


def test_a_connection_that_has_ended_holds_nothing() -> None:
    peer = waiting_calls(10)
    peer.machine.end()
    assert (peer.machine.streams, peer.machine.outbound.queued_bytes) == ({}, 0)
    assert all(stream.queue is None for stream in peer.streams.values())
    peer.feed(headers(21))
    assert 21 not in peer.streams
