"""Memory that requests took is given back to the system."""

from __future__ import annotations

import asyncio
import contextlib
import gc
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
