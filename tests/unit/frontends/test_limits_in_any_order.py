"""The limits that connections share, whatever they do in whatever order: never exceeded, and nothing is lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trireme.frontends.connection_slots import ConnectionSlots
from trireme.frontends.inflight import ConnectionBytes, InflightBytes

ADDRESSES = st.sampled_from("abc")
SIZES = st.integers(0, 400)


@given(most=st.integers(0, 6), per_address=st.integers(0, 3), events=st.lists(st.tuples(ADDRESSES, st.booleans())))
def test_connections_never_exceed_their_number(most: int, per_address: int, events: list[tuple[str, bool]]) -> None:
    slots, counted = ConnectionSlots(most, per_address), Counter[str]()
    for address, comes in events:
        if not comes:
            if counted[address]:
                slots.give_back(address)
                counted[address] -= 1
        elif slots.take():
            if slots.take_address(address):
                counted[address] += 1
            else:
                assert counted[address] == per_address
                slots.give_back(None)
        else:
            assert counted.total() == most
        assert counted.total() <= most
        assert not per_address or max(counted.values(), default=0) <= per_address
    for address in counted.elements():
        slots.give_back(address)
    assert all(slots.take() for _ in range(most)), "all of them are free again"
    assert not slots.take()


@given(aborts=st.lists(st.integers(0, 40)))
def test_connections_beyond_the_limit_stay_few(aborts: list[int]) -> None:
    """A number that is new comes in, one that is there leaves."""
    slots, inside = ConnectionSlots(0), dict[int, object]()
    for number in aborts:
        if number in inside:
            slots.leave_restricted(inside.pop(number))  # type: ignore[arg-type]
            continue

        def abort(number: int = number) -> None:
            del inside[number]

        inside[number] = abort
        slots.enter_restricted(abort)
        assert number in inside, "the newest stays"
        assert len(inside) <= 16


@given(
    limit=st.integers(1, 1000),
    own_limit=st.integers(1, 1000),
    events=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["hold", "unsent", "close"]), SIZES)),
)
def test_bytes_are_admitted_within_both_limits_and_given_back(
    limit: int, own_limit: int, events: list[tuple[int, str, int]]
) -> None:
    everything = InflightBytes(limit, own_limit)
    connections = [ConnectionBytes(everything) for _ in range(3)]
    for number, what, size in events:
        one = connections[number]
        if what == "close":
            one.close()
            connections[number] = ConnectionBytes(everything)
        elif what == "unsent" and not one.excess(max(0, size - one.unsent_bytes)):
            one.set_unsent(size)
        elif what == "hold" and not one.excess(size):
            one.hold(size)
        used = [each.held_bytes + each.unsent_bytes for each in connections]
        assert everything.used_bytes == sum(used) <= limit
        assert max(used) <= own_limit
    for one in connections:
        one.close()
    assert everything.used_bytes == 0
