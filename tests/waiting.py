"""Waiting for what becomes true soon, in tests that look at other threads and processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PAUSE_S = 0.005


def until(condition: Callable[[], object], timeout_s: float = 20, *, pause_s: float = _PAUSE_S) -> None:
    """Returns as soon as the condition holds; fails when it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(pause_s)


async def until_on_loop(condition: Callable[[], object], timeout_s: float = 10) -> None:
    """The same in a coroutine: whatever else is ready on the event loop runs between two looks."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)
