"""Many frames in one read: so many are dealt with at once, the others when asked for again."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.protocol.http2 import wire
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.frame_reader import FRAMES_PER_TURN
from trireme.protocol.http2.limits import Http2Limits


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


def test_a_connection_that_ends_has_no_backlog() -> None:
    machine = greeted()
    machine.receive(wire.ping_frame(b"12345678", False) * (FRAMES_PER_TURN + 1))
    machine.close()
    assert not machine.has_backlog


def greeted() -> Http2Connection:
    machine = Http2Connection(Nobody(), Http2Limits())
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
