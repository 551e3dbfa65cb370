"""Clients that do not go on with what they began, over gRPC."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from trireme.frontends.pace import PaceLimits
from trireme.protocol.http2 import wire

LIMITS = PaceLimits(idle_timeout_s=100, header_timeout_s=10, min_bytes_per_s=10, slow_timeout_s=10)


@pytest.fixture
def slow(start: Any) -> Any:
    return start(pace=LIMITS)


def sweep(bench: Any, *seconds: float) -> str:
    """Looks at the connection so many seconds from now; why it was closed."""
    begin_s = monotonic()
    for second in seconds:
        bench.client.connection.check_progress(begin_s + second)
    reason: str = bench.client.connection.http2.close_reason
    return reason


def test_a_frame_that_never_ends_is_given_up(slow: Any) -> None:
    assert sweep(slow, 9, 18) == ""
    slow.client.connection.data_received(wire.frame(wire.HEADERS, 0, 1, bytes(50))[:20])
    assert sweep(slow, 9) == ""
    assert sweep(slow, 11) == "a frame was not received in time"


def test_a_busy_client_is_in_the_midst_of_another_frame_each_time(slow: Any) -> None:
    frame = wire.window_update_frame(0, 1)
    slow.client.connection.data_received(frame[:5])
    for _ in range(3):
        assert sweep(slow, 11) == ""
        slow.client.connection.data_received(frame[5:] + frame[:5])
    assert sweep(slow, 11) == ""
    assert sweep(slow, 11) == "a frame was not received in time"


def test_a_message_that_drips_is_given_up_and_a_stream_that_waits_is_not(slow: Any) -> None:
    stream_id = slow.open("ModelStreamInfer")
    assert sweep(slow, *range(0, 90, 5)) == ""
    slow.client.connection.data_received(wire.frame(wire.DATA, 0, stream_id, bytes((0, 0, 0, 1, 0)) + b"x"))
    assert sweep(slow, 5, 11) == "a message arrives too slowly"


def test_a_client_that_may_not_send_on_is_not_given_up(slow: Any) -> None:
    stream_id = slow.open("ModelStreamInfer")
    slow.client.connection.data_received(wire.frame(wire.DATA, 0, stream_id, bytes((0, 0, 0, 1, 0)) + b"x"))
    extra = slow.client.connection._transport._extra
    extra["is_held_back"] = True
    assert sweep(slow, 11, 22) == ""
    extra["is_held_back"] = False
    assert sweep(slow, 9) == ""
    assert sweep(slow, 11) == "a message arrives too slowly"


def test_a_client_that_was_not_read_from_has_all_of_its_time_behind_that(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("trireme.frontends.pace.monotonic", lambda: now[0])
    bench = start(pace=LIMITS)
    connection = bench.client.connection
    stream_id = bench.open("ModelStreamInfer")

    def sweep_later(seconds: float) -> str:
        now[0] += seconds
        connection.check_progress(now[0])
        reason: str = connection.http2.close_reason
        return reason

    assert sweep_later(0) == ""
    connection.data_received(wire.frame(wire.DATA, 0, stream_id, bytes((0, 0, 0, 1, 0)) + b"x"))
    connection.expect(1 << 40)
    assert connection.is_held_off
    assert [sweep_later(9) for _ in range(3)] == ["", "", ""]
    connection.expect(-1 << 40)
    assert not connection.is_held_off
    assert sweep_later(9) == ""
    assert sweep_later(2) == "a message arrives too slowly"


@pytest.mark.parametrize("message", [b"", bytes((0, 0, 0, 0, 0)), bytes((0, 0, 0, 0, 1)) + b"x"])
def test_a_unary_call_whose_request_never_ends_is_given_up(slow: Any, message: bytes) -> None:
    """Though no message is midway: none has begun, or it is whole and waits for the request's end."""
    stream_id = slow.open("ServerLive")
    if message:
        slow.client.connection.data_received(wire.frame(wire.DATA, 0, stream_id, message))
    assert sweep(slow, 0, 5) == ""
    assert sweep(slow, 12, 18, 24) == "a message arrives too slowly"


def test_a_connection_is_not_slow_before_it_is_old_enough(start: Any) -> None:
    """The first look may find it in the midst of a message, or of an answer."""
    sending, reading = start(pace=LIMITS), start(pace=LIMITS)
    stream_id = sending.open("ModelStreamInfer")
    sending.client.connection.data_received(wire.frame(wire.DATA, 0, stream_id, bytes((0, 0, 0, 1, 0)) + b"x"))
    http2 = reading.client.connection.http2
    http2.outbound.send_data(http2.streams[reading.open("ModelStreamInfer")], [bytes(17 << 20)], 17 << 20)
    reading.client.connection.flush()
    assert (sweep(sending, 1, 9), sweep(reading, 1, 9)) == ("", "")
    assert sweep(sending, 60) == "a message arrives too slowly"


def test_answers_that_nobody_reads_are_given_up_later(slow: Any) -> None:
    stream_id = slow.open("ModelStreamInfer")
    http2 = slow.client.connection.http2
    http2.outbound.send_data(http2.streams[stream_id], [bytes(17 << 20)], 17 << 20)
    slow.client.connection.flush()
    assert http2.outbound.queued_bytes
    assert sweep(slow, *range(0, 50, 5)) == ""
    slow.client.connection.data_received(wire.window_update_frame(0, 1))
    assert sweep(slow, *range(50, 120, 5)) == "responses are read too slowly"


def test_a_connection_without_calls_is_asked_to_go_away(slow: Any) -> None:
    sweep(slow, 0)
    slow.open("ModelStreamInfer")
    assert sweep(slow, *range(0, 500, 50)) == ""
    assert not slow.client.connection.is_draining
    idle = slow.client.connection.http2.streams
    slow.reset(next(iter(idle)))
    sweep(slow, 501, 700)
    assert slow.client.connection.is_draining
    assert slow.client.connection.http2.is_closed
