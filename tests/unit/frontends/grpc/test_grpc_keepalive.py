"""Pings both ways and the age of a connection, with time turned by hand."""

from __future__ import annotations

import struct

from trireme.protocol.http2 import wire

PING = wire.ping_frame(b"12345678", False)


def goaway(frames) -> tuple[int, bytes] | None:
    for kind, _, _, payload in frames:
        if kind == wire.GOAWAY:
            return struct.unpack(">I", payload[4:8])[0], payload[8:]
    return None


def test_pings_too_close_to_each_other_end_the_connection(client, tools) -> None:
    client.infer(tools.infer_request("held"))
    for _ in range(4):
        assert goaway(client.frames()) is None
        client.connection.data_received(PING)
    assert goaway(client.frames()) == (wire.ENHANCE_YOUR_CALM, b"too_many_pings")
    assert client.transport.is_closed


def test_pings_at_the_allowed_pace_are_fine(client, tools) -> None:
    client.infer(tools.infer_request("held"))
    for _ in range(10):
        client.connection.data_received(PING)
        client.loop.advance(301)
    assert goaway(client.frames()) is None


def test_sent_data_forgives_pings(client, tools) -> None:
    for _ in range(10):
        client.infer(tools.infer_request())
        client.connection.data_received(PING * 2)
    assert goaway(client.frames()) is None


def test_strikes_may_be_unlimited(tools) -> None:
    client = tools.Client(http2_max_ping_strikes=0)
    client.connection.data_received(PING * 20)
    assert goaway(client.frames()) is None


def test_a_silent_client_with_a_call_is_pinged_and_given_up(tools) -> None:
    client = tools.Client(keepalive_time_ms=1000, keepalive_timeout_ms=500)
    client.infer(tools.infer_request("held"))
    client.loop.advance(1.1)
    assert [kind for kind, *_ in client.frames()] == [wire.PING]
    client.loop.advance(0.6)
    assert client.transport.is_closed


def test_a_client_that_answers_pings_stays(tools) -> None:
    client = tools.Client(keepalive_time_ms=1000, keepalive_timeout_ms=500, http2_max_pings_without_data=0)
    client.infer(tools.infer_request("held"))
    for _ in range(5):
        client.loop.advance(1.1)
        (frame,) = [payload for kind, _, _, payload in client.frames() if kind == wire.PING]
        client.connection.data_received(wire.ping_frame(frame, True))
    assert not client.transport.is_closed


def test_pings_without_data_are_limited(tools) -> None:
    client = tools.Client(keepalive_time_ms=1000, http2_max_pings_without_data=2)
    client.infer(tools.infer_request("held"))
    client.connection.http2.outbound.has_sent_data = False
    count = 0
    for _ in range(6):
        client.loop.advance(1.1)
        pings = [payload for kind, _, _, payload in client.frames() if kind == wire.PING]
        count += len(pings)
        if pings:
            client.connection.data_received(wire.ping_frame(pings[0], True))
    assert count == 2


def test_idle_connections_are_not_pinged_unless_permitted(tools) -> None:
    for is_permitted in (False, True):
        client = tools.Client(keepalive_time_ms=1000, keepalive_permit_without_calls=is_permitted)
        client.loop.advance(1.1)
        assert [kind for kind, *_ in client.frames()] == ([wire.PING] if is_permitted else [])


def test_an_old_connection_is_told_to_go_and_closed_after_its_grace(tools) -> None:
    client = tools.Client(max_connection_age_ms=10_000, max_connection_age_grace_ms=3_000)
    client.infer(tools.infer_request("held"))
    client.loop.advance(8.9)
    assert client.frames() == []
    client.loop.advance(2.2)
    assert goaway(client.frames()) == (wire.NO_ERROR, b"")
    assert not client.transport.is_closed
    client.loop.advance(3.0)
    assert client.transport.is_closed
    assert len(client.server.inference.cancelled) == 1


def test_an_old_connection_closes_with_its_last_call(tools) -> None:
    client = tools.Client(max_connection_age_ms=10_000)
    client.infer(tools.infer_request("held"))
    client.loop.advance(11.1)
    assert not client.transport.is_closed
    client.server.inference.release(client.server.inference.held[0])
    client.loop.turn()
    assert client.transport.is_closed
