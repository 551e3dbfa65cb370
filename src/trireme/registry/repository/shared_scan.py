"""One scan of the repositories at a time, beside the event loop, for all who ask meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trireme.registry.repository.repositories import Scan


class SharedScan:
    """Used on the event loop's thread. However many ask, and however long the disk takes, one thread reads and one more
    scan waits for it."""

    def __init__(self, scan: Callable[[], Scan]) -> None:
        self._scan = scan
        self._running: asyncio.Task[Scan] | None = None
        self._next: asyncio.Task[Scan] | None = None

    async def fresh(self) -> Scan:
        """What the repositories hold, read after this call; a scan that has begun before does not do."""
        if self._next is None:
            self._next = asyncio.create_task(self._scan_after(self._running))
        return await asyncio.shield(self._next)

    async def _scan_after(self, previous: asyncio.Task[Scan] | None) -> Scan:
        if previous is not None:
            await asyncio.wait((previous,))
        self._running, self._next = self._next, None
        try:
            return await asyncio.to_thread(self._scan)
        finally:
            self._running = None
