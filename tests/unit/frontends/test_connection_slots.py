"""How many connections there may be, and what is kept free for the server itself."""

from __future__ import annotations

import asyncio
import gc
import resource
import weakref
from functools import partial

import pytest

from trireme.frontends.connection_slots import (
    ConnectionPlace,
    ConnectionSlots,
    address_of,
    connection_count,
    create_slots,
)


def test_connections_are_counted_in_all_and_by_address() -> None:
    slots = ConnectionSlots(3, max_per_address=2)
    assert [slots.take() for _ in range(4)] == [True, True, True, False]
    assert [slots.take_address(address) for address in "aaab"] == [True, True, False, True]
    slots.give_back("a")
    assert slots.take()
    assert slots.take_address("a")
    slots.give_back(None)
    assert [slots.take(), slots.take()] == [True, False]


def test_the_oldest_connection_beyond_the_limit_makes_way() -> None:
    slots = ConnectionSlots(0)
    ended: list[int] = []
    aborts = [lambda number=number: ended.append(number) for number in range(18)]
    for abort in aborts[:16]:
        slots.enter_restricted(abort)
    slots.leave_restricted(aborts[0])
    slots.enter_restricted(aborts[16])
    assert ended == []
    slots.enter_restricted(aborts[17])
    assert ended == [1]
    slots.leave_restricted(aborts[1])


def test_a_connection_beyond_the_limit_takes_a_slot_that_is_free_meanwhile() -> None:
    async def scenario() -> None:
        slots = ConnectionSlots(2, max_per_address=1)
        ended: list[str] = []
        first, second, late, same = (ConnectionPlace(slots) for _ in range(4))
        assert [place.is_counted for place in (first, second, late, same)] == [True, True, False, False]
        for place, address in ((first, "a"), (second, "b"), (late, "c"), (same, "b")):
            place.enter(address, partial(ended.append, address))
        assert not late.count()
        first.leave()
        assert not same.count()  # its address has one
        assert slots.count == 1
        assert late.count()
        assert late.count()
        assert slots.count == 2
        for number in range(16):
            slots.enter_restricted(partial(ended.append, str(number)))
        assert ended == ["b"]  # the one that was counted is not made to go any more
        late.leave()
        same.leave()
        assert slots.count == 1

    asyncio.run(scenario())


def test_a_connection_that_is_lost_twice_is_given_back_once() -> None:
    slots = ConnectionSlots(2)
    first, _ = ConnectionPlace(slots), ConnectionPlace(slots)
    assert first.claim("a")
    for _ in range(2):
        first.leave()
    assert slots.count == 1


def test_few_connections_beyond_the_limit_may_be_in_their_handshakes() -> None:
    async def scenario() -> None:
        slots = ConnectionSlots(0)
        places = [ConnectionPlace(slots) for _ in range(18)]
        assert [place.claim("a") for place in places] == [True] * 16 + [False] * 2
        places[0].enter("a", lambda: None)  # has come
        places[1].leave()  # has failed
        for place in (places[0], places[1]):
            place.leave()
        assert [place.claim("a") for place in (places[16], places[17], ConnectionPlace(slots))] == [True, True, False]

    asyncio.run(scenario())


def test_a_connection_of_an_address_with_too_many_is_ended() -> None:
    slots = ConnectionSlots(9, max_per_address=1)
    ended: list[str] = []
    first, second = ConnectionPlace(slots), ConnectionPlace(slots)
    first.enter("a", partial(ended.append, "first"))
    second.enter("a", partial(ended.append, "second"))
    assert ended == ["second"]
    second.leave()
    assert slots.count == 1
    first.leave()
    assert (slots.count, slots.take_address("a")) == (0, True)


def test_a_connection_that_has_left_is_not_kept_by_its_place() -> None:
    class Client:
        def abort(self) -> None:
            """Nothing is open."""

    async def scenario() -> None:
        place, client = ConnectionPlace(ConnectionSlots(0)), Client()
        place.enter("a", client.abort)
        seen = weakref.ref(client)
        place.leave()
        del client
        assert seen() is None

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("wanted", "allowed", "expected"),
    [(10_000, 256, 256 - 30 - 64 - 16), (50, 256, 50), (0, 4096, 4096 - 30 - 1024 - 16), (9, 40, 1)],
)
def test_descriptors_are_kept_for_the_server(
    monkeypatch: pytest.MonkeyPatch, wanted: int, allowed: int, expected: int
) -> None:
    monkeypatch.setattr("os.listdir", lambda _: [""] * 30)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert connection_count(wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "allowed", "told"), [(50, 4096, "--max-connections to"), (10_000, 256, "ulimit -n")]
)
def test_the_limit_that_holds_is_named(monkeypatch: pytest.MonkeyPatch, wanted: int, allowed: int, told: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert told in ConnectionPlace(create_slots(wanted, 0)).refusal


def test_without_a_bound_of_the_system_the_wish_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert connection_count(7) == 7
    assert connection_count(0) > 1 << 30


def test_a_socket_without_an_address_has_none() -> None:
    assert address_of(("127.0.0.1", 80)) == "127.0.0.1"
    assert address_of("") == address_of(None) == ""
