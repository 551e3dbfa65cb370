"""Many frames in one read: so many are dealt with at once, the others when asked for again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.core.elements import Buffer
from trireme.protocol.http2 import wire
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.frame_reader import FRAMES_PER_TURN
from trireme.protocol.http2.headers import encode_block
from trireme.protocol.http2.limits import Http2Limits
from trireme.protocol.http2.stream import Stream


class SlowSink:
    """Takes some milliseconds for everything, by a clock of its own."""

    def __init__(self, milliseconds: int) -> None:
        self.now_ns = 1
        self.count = 0
        self._step_ns = milliseconds * 1_000_000

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        self.now_ns += self._step_ns
        self.count += 1

    def data_arrived(self, stream: Stream, data: Buffer, is_ended: bool) -> None:
        self.request_started(stream, is_ended)

    def stream_reset(self, stream: Stream) -> None:
        raise AssertionError

    def ping_arrived(self) -> None:
        raise AssertionError

    ping_answered = ping_arrived


def request(stream_id: int, value: bytes = b"") -> bytes:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b"x", value)]
    return wire.frame(wire.HEADERS, wire.END_HEADERS, stream_id, encode_block(fields))


class Nobody:
    """Hears of everything and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_so_many_frames_are_read_at_once_and_no_more() -> None:
    machine = greeted()
    pings = b"".join(wire.ping_frame(n.to_bytes(8, "big"), False) for n in range(600))
    machine.receive(pings + b"\0\0\1")  # and the beginning of a frame
    answered: list[int] = []
    for expected in (FRAMES_PER_TURN, FRAMES_PER_TURN, 600 - 2 * FRAMES_PER_TURN):
        found = pongs(machine)
        assert len(found) == expected
        answered += [int.from_bytes(payload, "big") for payload in found]
        assert machine.has_backlog == (len(answered) < 600)
        machine.receive(b"")
    assert answered == list(range(600))


def test_what_arrives_behind_a_backlog_is_read_behind_it() -> None:
    machine = greeted()
    machine.receive(wire.ping_frame(b"12345678", False) * (FRAMES_PER_TURN + 1))
    assert machine.has_backlog
    machine.receive(wire.ping_frame(b"the last", False))
    assert pongs(machine)[-2:] == [b"12345678", b"the last"]
    assert not machine.has_backlog


def test_settings_take_a_larger_part_of_a_turn() -> None:
    machine = greeted()
    machine.receive(b"\0\0\0\4\0\0\0\0\0" * 20)
    assert machine.has_backlog
    assert b"".join(machine.outbound.pieces).count(b"\4\1\0\0\0\0") == 8  # acknowledged
    while machine.has_backlog:
        machine.receive(b"")
    assert b"".join(machine.outbound.pieces).count(b"\4\1\0\0\0\0") == 20


@pytest.mark.parametrize("is_data", [False, True], ids=["requests", "messages"])
def test_a_turn_ends_with_its_time_whatever_the_frames_are(is_data: bool) -> None:
    sink = SlowSink(3)
    machine = Http2Connection(sink, Http2Limits(), lambda: sink.now_ns)
    machine.receive(wire.PREFACE + b"\0\0\0\4\0\0\0\0\0" + request(1))
    if is_data:
        frames = [wire.frame(wire.DATA, 0, 1, b"%d" % n) for n in range(200)]
    else:
        frames = [request(2 * n + 3) for n in range(200)]
    sink.count = turns = 0
    machine.receive(b"".join(frames) + b"\0\0\1")  # and the beginning of a frame
    assert sink.count <= 32, "one looks at the clock every 16 frames"
    while machine.has_backlog:
        machine.receive(b"")
        turns += 1
        assert sink.count <= 32 * (turns + 1)
    assert sink.count == 200


def test_large_heads_are_looked_at_one_by_one() -> None:
    sink = SlowSink(10)
    machine = Http2Connection(sink, Http2Limits(), lambda: sink.now_ns)
    machine.receive(wire.PREFACE + b"\0\0\0\4\0\0\0\0\0")
    machine.receive(b"".join(request(2 * n + 1, b"v" * 3000) for n in range(60)))
    turns = 0
    assert sink.count <= 5
    while machine.has_backlog:
        machine.receive(b"")
        turns += 1
        assert sink.count <= 5 * (turns + 1)
    assert sink.count == 60


def test_a_connection_that_ends_has_no_backlog() -> None:
    machine = greeted()
    machine.receive(wire.ping_frame(b"12345678", False) * (FRAMES_PER_TURN + 1))
    machine.close()
    assert not machine.has_backlog


def greeted() -> Http2Connection:
    machine = Http2Connection(Nobody(), Http2Limits(), lambda: 1)
    machine.receive(wire.PREFACE + b"\0\0\0\4\0\0\0\0\0")
    pongs(machine)
    return machine


def pongs(machine: Http2Connection) -> list[bytes]:
    """The payloads of the answers to PING since the last look."""
    raw, position, found = b"".join(machine.outbound.pieces), 0, []
    machine.outbound.pieces.clear()
    while position < len(raw):
        high, low, kind, _, _ = wire.FRAME_HEAD.unpack_from(raw, position)
        end = position + wire.FRAME_HEAD_BYTES + (high << 16 | low)
        if kind == wire.PING:
            found.append(raw[position + wire.FRAME_HEAD_BYTES : end])
        position = end
    return found


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 900), st.lists(st.integers(1, 9000), max_size=30))
def test_however_frames_arrive_all_are_answered_in_order(count: int, cuts: list[int]) -> None:
    machine = greeted()
    raw = b"".join(wire.ping_frame(n.to_bytes(8, "big"), False) for n in range(count))
    found: list[bytes] = []
    position = 0
    for size in [*cuts, len(raw)]:
        machine.receive(raw[position : position + size])
        position += size
        found += pongs(machine)
        while machine.has_backlog:
            machine.receive(b"")
            answered = pongs(machine)
            assert len(answered) <= FRAMES_PER_TURN
            found += answered
    assert [int.from_bytes(payload, "big") for payload in found] == list(range(count))
