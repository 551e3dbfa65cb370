"""Memory that requests took is given back to the system."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref

import pytest
from waiting import until_on_loop

from trireme.app import free_memory
from trireme.frontends.inflight import InflightBytes


class _Thing:
    itself: _Thing


@pytest.mark.parametrize("taken_bytes", [1 << 20, 64 << 20])
def test_what_is_freed_but_kept_by_python_is_given_up_behind_much_memory(
    taken_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_memory, "_INTERVAL_S", 0.0)
    inflight = InflightBytes()
    inflight.add(taken_bytes)
    inflight.add(-taken_bytes)
    looks: list[int] = []
    monkeypatch.setattr(inflight.__class__, "take_peak", _counting(looks, InflightBytes.take_peak))

    async def scenario() -> bool:
        thing = _Thing()
        thing.itself = thing
        found = weakref.ref(thing)
        del thing
        keeper = asyncio.create_task(free_memory.keep_giving_back(inflight))
        await until_on_loop(lambda: len(looks) > 1)
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        return found() is None

    gc.disable()
    try:
        assert asyncio.run(scenario()) is (taken_bytes > 32 << 20)
    finally:
        gc.enable()


def _counting(looks: list[int], take_peak):  # type: ignore[no-untyped-def]
    def counted(inflight: InflightBytes) -> int:
        looks.append(1)
        return int(take_peak(inflight))

    return counted


class Collections:
    """Counts the collections of everything, in place of those."""

    count = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks = 1_000_000
        monkeypatch.setattr(gc, "collect", self._collect)
        monkeypatch.setattr(sys, "getallocatedblocks", lambda: self.blocks)

    def _collect(self) -> int:
        self.count += 1
        return 0


def test_many_small_objects_that_are_gone_are_memory_to_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    python = Collections(monkeypatch)
    watch = free_memory.MemoryWatch(InflightBytes())
    looks = []
    for blocks in (1_000_000, 3_000_000, 3_000_000, 2_700_000, 1_000_000, 1_000_000, 1_000_000):
        python.blocks = blocks
        looks.append(watch.look())

    assert looks == [False, False, False, False, True, True, False], "and once more behind it"


def test_many_objects_are_not_looked_through_while_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    python, inflight = Collections(monkeypatch), InflightBytes()
    watch = free_memory.MemoryWatch(inflight)
    inflight.add(64 << 20)
    inflight.add(-64 << 20)
    python.blocks = 3_000_000
    for _ in range(2):
        assert watch.look()
        watch.clear_free_lists()
    assert python.count == 0
    assert not watch.look(), "nothing more is to be had as long as they are there"

    python.blocks = 1_100_000
    assert watch.look()
    watch.clear_free_lists()
    assert python.count == 1
