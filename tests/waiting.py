"""Waiting for what becomes true soon, in tests that look at other threads and processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


def until(condition: Callable[[], object], timeout_s: float = 20, *, pause_s: float = _PAUSE_S) -> None:
    """Returns as soon as the condition holds; fails when it never does."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        assert waited_s < timeout_s, "the condition never came true"
        pause(waited_s, pause_s)


def pause(waited_s: float, pause_s: float = _PAUSE_S) -> None:
    """Between two looks at what has not come true for so long: longer then, since each look takes processor time from
    what it waits for."""
    time.sleep(max(pause_s, min(waited_s / 20, _LONGEST_PAUSE_S)))


async def until_on_loop(condition: Callable[[], object], timeout_s: float = 10) -> None:
    """The same in a coroutine: whatever else is ready on the event loop runs between two looks."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)
