"""Messages that wait for room do not wait for each other; where there is none in time the latest are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trireme.frontends import inflight
from trireme.frontends.inflight import ConnectionBytes, InflightBytes
from trireme.protocol.http2 import wire
from trireme.protocol.http2.frame_reader import FRAMES_PER_TURN

SIZE = 100_000
FRAMED = SIZE + 100
"""What a request with so much data takes at most."""


class Clock:
    now_s = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time stands still unless a test says otherwise."""
    clock = Clock()
    monkeypatch.setattr(inflight, "_POLL_S", 0.001)
    monkeypatch.setattr(inflight, "monotonic", lambda: clock.now_s)
    return clock


def client_of(tools: Any, everything: InflightBytes) -> Any:
    client = tools.Client(inflight=everything)
    client.connection.data_received(wire.window_update_frame(0, 1 << 24))
    client.transport.writes.clear()
    return client


def parts_of(client: Any, tools: Any, count: int, method: str, model: str = "later") -> list[bytes]:
    """A call in so many pieces, the last of which ends it."""
    stream_id, head = client.call_bytes(f"{tools.SERVICE}{method}", [], is_ended=False)
    message = tools.infer_request(model, data=bytes(SIZE)).SerializeToString()
    framed = len(message).to_bytes(5, "big") + message
    step = -(-len(framed) // count)
    parts = [framed[start : start + step] for start in range(0, len(framed), step)]
    frames = [wire.frame(wire.DATA, 0, stream_id, part) for part in parts]
    frames[-1] = wire.frame(wire.DATA, wire.END_STREAM, stream_id, parts[-1])
    return [head + frames[0], *frames[1:]]


async def turn_until(clients: list[Any], is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_done():
            for client in clients:
                client.loop.turn()
            await asyncio.sleep(0)


def statuses(client: Any) -> list[str]:
    client.loop.turn()
    return [fields["grpc-status"] for fields, _ in client.answers().values()]


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_all_that_fit_by_themselves_are_answered_one_after_another(tools: Any, method: str) -> None:
    count, most = 30, 10
    everything = InflightBytes(most * FRAMED, most * FRAMED)
    clients = [client_of(tools, everything) for _ in range(count)]
    unsent = {client: parts_of(client, tools, 4, method) for client in clients}
    # One message may be more than the quarter, and each client may send a part before it is held up.
    most_bytes = everything.limit_bytes * 5 // 4 + FRAMED + count * SIZE // 4

    def is_done() -> bool:
        for client, rest in unsent.items():
            if rest and client.transport.is_read:
                client.connection.data_received(rest.pop(0))
        return not any(unsent.values()) and not any(client.connection.http2.streams for client in clients)

    asyncio.run(turn_until(clients, is_done))
    assert [statuses(client) for client in clients] == [["0"]] * count
    assert (everything.used_bytes, everything.waiting_bytes) == (0, 0)
    assert everything.take_peak() <= most_bytes


def test_where_one_connection_sends_too_much_at_once_the_later_are_refused_at_once_and_the_others_served(
    tools: Any,
) -> None:
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    client = client_of(tools, everything)
    calls = [parts_of(client, tools, 2, "ModelInfer") for _ in range(30)]

    async def story() -> list[str]:
        for begin, _ in calls:
            client.connection.data_received(begin)
        await turn_until([client], lambda: client.transport.is_read)
        for _, end in calls:
            client.connection.data_received(end)
        await turn_until([client], lambda: not client.connection.http2.streams)
        return statuses(client)

    assert sorted(asyncio.run(story())) == ["0"] * 10 + ["8"] * 20
    assert (everything.used_bytes, everything.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_where_there_is_no_room_in_time_the_latest_are_refused_until_the_others_fit(
    tools: Any, clock: Clock, method: str
) -> None:
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    calls = [parts_of(client, tools, 2, method) for _ in range(3)]

    async def story() -> list[str]:
        other.hold(8 * FRAMED + 7 * FRAMED // 10)
        for begin, _ in calls:
            client.connection.data_received(begin)
        client.loop.turn()
        clock.now_s = 1.9
        await asyncio.sleep(0.01)
        assert not client.transport.is_read
        clock.now_s = 2.0
        await turn_until([client], lambda: client.transport.is_read)
        assert everything.used_bytes > other.held_bytes + SIZE, "the rest of what goes on is counted"
        for _, end in calls:
            client.connection.data_received(end)
        await turn_until([client], lambda: not client.connection.http2.streams)
        return statuses(client)

    assert sorted(asyncio.run(story())) == ["0", "8", "8"]
    assert (everything.used_bytes, everything.waiting_bytes) == (other.held_bytes, 0)


def test_a_message_that_never_fits_is_refused_at_once_and_not_those_behind_it(tools: Any) -> None:
    everything = InflightBytes(FRAMED, FRAMED)
    client = client_of(tools, everything)
    large, large_head = client.call_bytes(f"{tools.SERVICE}ModelInfer", [], is_ended=False)
    begin, end = parts_of(client, tools, 2, "ModelInfer")

    async def story() -> dict[int, Any]:
        prefix = (2 * SIZE).to_bytes(5, "big")
        client.connection.data_received(large_head + wire.frame(wire.DATA, 0, large, prefix + bytes(SIZE)) + begin)
        await turn_until([client], lambda: client.transport.is_read)
        client.connection.data_received(end)
        await turn_until([client], lambda: not client.connection.http2.streams)
        client.loop.turn()
        return dict(client.answers())

    answers = asyncio.run(story())
    assert [fields["grpc-status"] for fields, _ in answers.values()] == ["8", "0"]
    assert f"a message of {2 * SIZE + 5} bytes is larger" in answers[large][0]["grpc-message"]


def test_nothing_is_kept_for_the_rest_of_a_message_that_will_not_come(tools: Any) -> None:
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    begin, _ = parts_of(client, tools, 2, "ModelInfer")

    async def story() -> None:
        other.hold(10 * FRAMED)
        client.connection.data_received(begin)
        client.loop.turn()
        other.hold(-9 * FRAMED)
        await turn_until([client], lambda: client.transport.is_read)
        assert everything.used_bytes > FRAMED + SIZE, "all of it is counted"
        client.connection.data_received(wire.rst_stream_frame(1, wire.CANCEL))
        assert everything.used_bytes == FRAMED

    asyncio.run(story())


def test_no_more_is_kept_than_is_missing_when_a_message_is_let_in(tools: Any) -> None:
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    begin, backlog, end = parts_of(client, tools, 3, "ModelInfer", "held")

    async def story() -> None:
        other.hold(10 * FRAMED)
        client.connection.data_received(begin)
        client.loop.turn()
        client.connection.data_received(backlog)  # was read before, and not looked at
        other.hold(-9 * FRAMED)
        await turn_until([client], lambda: client.transport.is_read)
        assert everything.promised_bytes <= SIZE // 3 + 100
        client.connection.data_received(end)
        assert client.server.inference.held, "nobody has answered it yet"
        assert everything.promised_bytes == 0

    asyncio.run(story())


def test_a_message_that_ends_while_it_waits_is_not_taken_for_one_that_waits(tools: Any) -> None:
    everything = InflightBytes(FRAMED, FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    begin, _ = parts_of(client, tools, 2, "ModelInfer")

    async def story() -> None:
        other.hold(FRAMED)
        client.connection.data_received(begin)
        client.loop.turn()
        assert everything.waiting_bytes > SIZE // 3
        client.connection.data_received(wire.rst_stream_frame(1, wire.CANCEL))
        assert (everything.used_bytes, everything.waiting_bytes) == (FRAMED, 0)
        client.connection.connection_lost(None)

    asyncio.run(story())


def test_what_begins_while_others_wait_is_refused_where_it_never_fits_and_takes_no_room(tools: Any) -> None:
    """More frames than are read in one go may lie between the two."""
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    begin, end = parts_of(client, tools, 2, "ModelInfer")
    large, large_head = client.call_bytes(f"{tools.SERVICE}ModelInfer", [], is_ended=False)
    between = wire.window_update_frame(0, 1) * FRAMES_PER_TURN
    prefix = (1 << 30).to_bytes(5, "big")

    async def story() -> dict[int, Any]:
        other.hold(10 * FRAMED)
        client.connection.data_received(begin + between + large_head + wire.frame(wire.DATA, 0, large, prefix))
        client.loop.turn()
        other.hold(-9 * FRAMED)
        await turn_until([client], lambda: client.transport.is_read)
        assert everything.promised_bytes <= SIZE
        client.connection.data_received(end)
        await turn_until([client], lambda: not client.connection.http2.streams)
        client.loop.turn()
        return dict(client.answers())

    answers = asyncio.run(story())
    assert {stream: fields["grpc-status"] for stream, (fields, _) in answers.items()} == {1: "0", large: "8"}
    assert (
        f"{(1 << 30) + 5} bytes" in answers[large][0]["grpc-message"] or "at once" in answers[large][0]["grpc-message"]
    )
    assert (everything.used_bytes, everything.waiting_bytes) == (other.held_bytes, 0)


def test_what_begins_in_the_turn_in_which_others_are_let_in_is_not_let_in_with_them(tools: Any) -> None:
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    begin, end = parts_of(client, tools, 2, "ModelInfer")
    large, large_head = client.call_bytes(f"{tools.SERVICE}ModelInfer", [], is_ended=False)

    async def story() -> list[str]:
        other.hold(10 * FRAMED)
        client.connection.data_received(begin)
        client.loop.turn()
        prefix = (1 << 30).to_bytes(5, "big")
        client.connection.data_received(large_head + wire.frame(wire.DATA, 0, large, prefix))
        other.hold(-9 * FRAMED)
        everything._look()
        assert everything.promised_bytes <= SIZE
        rest = 9 * FRAMED
        while client.transport.is_read and rest > 0:
            client.connection.data_received(wire.frame(wire.DATA, 0, large, bytes(10_000)))
            rest -= 10_000
        client.loop.turn()
        client.connection.data_received(end)
        await turn_until([client], lambda: not client.connection.http2.streams)
        return statuses(client)

    assert sorted(asyncio.run(story())) == ["0", "8"]
    assert everything.take_peak() <= everything.limit_bytes * 5 // 4


def test_a_client_need_not_wait_for_a_message_whose_time_is_over(tools: Any, clock: Clock) -> None:
    everything = InflightBytes(10 * FRAMED, 10 * FRAMED)
    other = ConnectionBytes(everything)
    client = client_of(tools, everything)
    timeout = [("grpc-timeout", "1S")]
    stream_id, head = client.call_bytes(f"{tools.SERVICE}ModelInfer", [], timeout, is_ended=False)
    begun = SIZE.to_bytes(5, "big") + bytes(SIZE // 2)

    async def story() -> None:
        other.hold(10 * FRAMED - SIZE // 4)
        client.connection.data_received(head + wire.frame(wire.DATA, 0, stream_id, begun))
        client.loop.turn()
        assert not client.transport.is_read
        client.loop.advance(1.5)
        clock.now_s = 1.5
        await turn_until([client], lambda: client.transport.is_read)
        assert statuses(client) == ["4"]
        assert (everything.used_bytes, everything.waiting_bytes) == (other.held_bytes, 0)

    asyncio.run(story())
