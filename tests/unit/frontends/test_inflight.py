"""What requests and unread answers take: counted in all and by connection, waited for, and refused by name."""

from __future__ import annotations

import asyncio

import pytest

from trireme.core.errors import UnavailableError
from trireme.frontends import inflight
from trireme.frontends.inflight import ConnectionBytes, InflightBytes


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "_WAIT_S", 0.02)
    monkeypatch.setattr(inflight, "_POLL_S", 0.001)


def test_both_limits_are_named_when_they_are_exceeded() -> None:
    everything = InflightBytes(100, 60)
    one, other = ConnectionBytes(everything), ConnectionBytes(everything)
    one.hold(50)
    one.set_unsent(10)
    assert one.excess() == ""
    assert "would take 61 bytes, more than the 60 bytes" in one.excess(1)
    assert "--max-connection-inflight-bytes" in one.excess(1)
    other.hold(40)
    assert other.excess() == ""
    with pytest.raises(UnavailableError, match=r"the server would take 101 bytes.*--max-inflight-bytes"):
        other.check(1)
    assert "--max-connection-inflight-bytes" in other.fits_never(61)
    assert other.fits_never(60) == ""


def test_a_connection_that_ends_gives_back_what_it_held() -> None:
    everything = InflightBytes(100, 100)
    one = ConnectionBytes(everything)
    one.hold(50)
    one.set_unsent(20)
    one.set_unsent(30)
    assert everything.used_bytes == 80
    one.close()
    assert everything.used_bytes == 0
    assert (everything.take_peak(), everything.take_peak()) == (80, 0)


def test_who_waits_goes_on_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme.frontends.inflight.monotonic", lambda: 0.0)  # it never waits for too long

    async def story() -> list[str]:
        everything = InflightBytes(10, 10)
        one, other = ConnectionBytes(everything), ConnectionBytes(everything)
        other.hold(10)
        one.hold(5)
        told: asyncio.Queue[str] = asyncio.Queue()
        one.wait_for_room(lambda: told.put_nowait("room"), told.put_nowait)
        await asyncio.sleep(0.005)
        assert told.empty()
        other.close()
        return [await told.get()]

    assert asyncio.run(story()) == ["room"]


def test_who_waits_too_long_is_refused_and_who_is_gone_is_told_nothing() -> None:
    async def story() -> tuple[list[str], list[str]]:
        everything = InflightBytes(10, 20)
        one, gone = ConnectionBytes(everything), ConnectionBytes(everything)
        one.hold(15)
        told: list[str] = []
        told_gone: list[str] = []
        one.wait_for_room(lambda: told.append("room"), told.append)
        gone.wait_for_room(lambda: told_gone.append("room"), told_gone.append)
        gone.close()
        await asyncio.sleep(0.1)
        return told, told_gone

    told, told_gone = asyncio.run(story())
    assert told_gone == []
    assert len(told) == 1
    assert "--max-inflight-bytes" in told[0]


def test_a_line_that_moves_is_waited_in_for_longer_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(inflight, "_WAIT_S", 2.0)
    monkeypatch.setattr(inflight, "monotonic", lambda: now_s)
    told: list[str] = []

    async def look() -> list[str]:
        await asyncio.sleep(0.01)
        return told

    async def story() -> None:
        nonlocal now_s
        everything = InflightBytes(10, 10)
        holders = [ConnectionBytes(everything) for _ in range(3)]
        for number, holder in enumerate(holders):
            holder.hold(10)
            if number:
                holder.wait_for_room(lambda number=number: told.append(f"in {number}"), told.append, 10, 0)
        now_s = 1.9
        holders[0].close()
        assert await look() == ["in 1"]
        now_s = 3.8
        assert await look() == ["in 1"], "nobody is refused while others are let in"
        now_s = 3.9
        assert "--max-inflight-bytes" in (await look())[1]

    asyncio.run(story())


def test_nobody_waits_for_ever_behind_others_that_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(inflight, "_WAIT_S", 2.0)
    monkeypatch.setattr(inflight, "monotonic", lambda: now_s)
    let_in: list[int] = []
    refused: list[str] = []

    async def story() -> None:
        nonlocal now_s
        everything = InflightBytes(10, 10)
        holders = [ConnectionBytes(everything) for _ in range(40)]
        for number, holder in enumerate(holders):
            holder.hold(10)
            if number:
                holder.wait_for_room(lambda number=number: let_in.append(number), refused.append, 10, 0)
        for number, holder in enumerate(holders[:29]):
            now_s = number + 1.0
            holder.close()
            await asyncio.sleep(0.005)
        assert (let_in, refused) == ([*range(1, 30)], [])
        now_s = 30.0
        await asyncio.sleep(0.01)
        assert len(refused) == 10

    asyncio.run(story())


def test_what_is_promised_to_those_who_send_is_not_taken_by_answers() -> None:
    everything = InflightBytes(1000)
    connection = ConnectionBytes(everything)
    connection.promise(100)
    connection.hold(60)
    assert (connection.promised_bytes, everything.used_bytes) == (100, 160)
    connection.arrive(70)
    assert (connection.promised_bytes, everything.used_bytes) == (30, 160)
    connection.hold(-60)
    connection.arrive(70)
    assert (connection.promised_bytes, everything.used_bytes) == (0, 140)
    connection.close()
    assert (everything.promised_bytes, everything.used_bytes) == (0, 0)
