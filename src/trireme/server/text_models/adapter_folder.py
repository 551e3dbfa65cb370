"""A folder of adapters, looked at beside the event loop, for as long as somebody can be kept waiting for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from trireme.core.threads.pools import create_threads
from trireme.huggingface.adapters import AdapterListing, has_adapter

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 2.0
"""How long a look may take for those who ask."""


class AdapterFolder:
    """Used on the event loop's thread. It has a thread of its own: where its disk does not answer, other folders do,
    and whoever asks for this one is told what was there the last time."""

    def __init__(self, folder: Path, patience_s: float = PATIENCE_S) -> None:
        self._folder = folder
        self._patience_s = patience_s
        self._listing = AdapterListing(folder)
        self._thread = create_threads("adapters", most=1)
        self._names: Collection[str] = ()
        self._late: asyncio.Future[Any] | None = None
        self._is_closed = False

    async def names(self) -> Collection[str]:
        """Those of all adapters."""
        found = await self._look(self._listing.folders)
        if found is not None:
            self._names = found
        return self._names

    async def has(self, name: str) -> bool:
        """Whether there is an adapter of that name, without a look at the others."""
        found = await self._look(partial(has_adapter, self._folder, name))
        return name in self._names if found is None else found

    def close(self) -> None:
        """Lets the thread end, once it can."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _look(self, look: Callable[[], T]) -> T | None:
        """What a look finds; None where it takes too long. Nobody waits behind one that does, or begins another."""
        if self._is_closed or (self._late is not None and not self._late.done()):
            return None
        under_way = asyncio.get_running_loop().run_in_executor(self._thread, look)
        await asyncio.wait((under_way,), timeout=self._patience_s)
        if under_way.done():
            return None if under_way.cancelled() else under_way.result()
        if self._late is None or self._late.done():
            self._late = under_way
            log.warning("the folder of adapters '%s' does not answer: those of the last look are listed", self._folder)
        else:
            under_way.cancel()
        return None
