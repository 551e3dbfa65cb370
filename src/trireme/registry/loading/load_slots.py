"""How many models load at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)


class LoadSlots:
    """So many at a time. A load that takes longer than `time_s` counts no longer, or a few that hang would keep all
    others out; 0 lets every load count until its end."""

    def __init__(self, count: int, time_s: float) -> None:
        self._free = asyncio.Semaphore(max(1, count))
        self._time_s = time_s

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Waits for a slot and has it until the end, or until its time is over."""
        await self._free.acquire()
        is_held = True

        def let_others_in() -> None:
            nonlocal is_held
            is_held = False
            self._free.release()
            log.warning(
                "the load of '%s' has taken %g s and goes on beside those that --model-load-thread-count allows",
                name,
                self._time_s,
            )

        timer = asyncio.get_running_loop().call_later(self._time_s, let_others_in) if self._time_s else None
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            if is_held:
                self._free.release()
