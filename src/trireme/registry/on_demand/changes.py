"""Wakes loads that wait for what others have, when that may have become less."""

from __future__ import annotations

import asyncio

from trireme.registry.served_models import ServedModels


class Changes:
    """Told whenever a model comes or goes, a load is over, or sizes were measured anew; it finds out by itself when a
    model has answered its last request."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models
        self._waiters: set[asyncio.Future[None]] = set()
        models.on_change = self.notify

    def notify(self) -> None:
        """Something has changed: everybody looks again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        """Returns at the next change, or after the time."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        # Asked of those that are busy, and only while somebody waits: requests pay nothing for it.
        busy = [model.scheduler for model in self._models.serving() if model.scheduler.inflight_count]
        idle = [loop.create_task(scheduler.idle()) for scheduler in busy]
        try:
            await asyncio.wait([waiter, *idle], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiters.discard(waiter)
            for task in idle:
                task.cancel()
