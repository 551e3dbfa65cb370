"""A folder of adapters, looked at beside the event loop, for as long as somebody can be kept waiting for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from trireme.core.errors import UnavailableError
from trireme.core.threads.pools import create_threads
from trireme.huggingface.adapters import AdapterListing, has_adapter

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 2.0
"""How long a look may take for those who ask."""


class AdapterFolder:
    """Used on the event loop's thread. It has a thread of its own: where its disk does not answer, other folders do,
    and whoever asks for this one is told what was found the last time."""

    def __init__(
        self, folder: Path, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._patience_s = patience_s
        self._listing = AdapterListing(folder)
        self._thread = create_threads("adapters", most=1)
        self._names: Collection[str] = ()
        """Those of the last look at all."""
        self._is_known = False
        """Whether there was one."""
        self._differs: dict[str, bool] = {}
        """Whether those are there that were asked for alone since then, where the last list says otherwise."""
        self._looks: set[asyncio.Task[Any]] = set()
        self._waiting = 0
        self._begun_s = 0.0
        """When the look began that is under way."""
        self._late: asyncio.Future[Any] | None = None
        self._is_closed = False

    async def names(self) -> Collection[str]:
        """Those of all adapters."""
        await self._look(self._listing.folders, self._keep_all)
        return self._names

    async def has(self, name: str) -> bool:
        """Whether there is an adapter of that name, without a look at the others; raises UnavailableError where nobody
        can know."""
        found: bool | None = await self._look(partial(has_adapter, self._folder, name), partial(self._keep, name))
        if found is not None:
            return found
        if name in self._differs:
            return self._differs[name]
        if self._is_known:
            return name in self._names
        raise UnavailableError(f"the folder of adapters '{self._folder}' does not answer: try again in a moment")

    def close(self) -> None:
        """Lets the thread end, once it can."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _keep_all(self, names: Collection[str]) -> None:
        if self._is_known and names is self._names:  # which was not listed anew
            return
        self._names = names
        self._is_known = True
        self._differs.clear()

    def _keep(self, name: str, is_there: bool) -> None:
        if is_there == (name in self._names):
            self._differs.pop(name, None)
        else:
            self._differs[name] = is_there

    async def _look(self, look: Callable[[], T], keep: Callable[[T], None]) -> T | None:
        """As `_look_on` does it, which goes on where nobody waits for it any more."""
        looking = self._look_on(look, keep)
        task = asyncio.create_task(looking)
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)
        return await asyncio.shield(task)

    async def _look_on(self, look: Callable[[], T], keep: Callable[[T], None]) -> T | None:
        """What a look finds, which is kept; None where it takes too long, and then it is kept when it comes. Nobody
        waits behind one that does, or begins another; behind those that answer everybody waits."""
        if self._is_closed or (self._late is not None and not self._late.done()):
            return None
        if not self._waiting:
            self._begun_s = self._clock()
        work = self._thread.submit(self._begin, look)
        under_way = asyncio.wrap_future(work)
        self._waiting += 1
        try:
            while not under_way.done() and (left_s := self._begun_s + self._patience_s - self._clock()) > 0:
                await asyncio.wait((under_way,), timeout=left_s)
        finally:
            self._waiting -= 1
        if under_way.done():
            if under_way.cancelled():
                return None
            found = under_way.result()
            keep(found)
            return found
        if not work.cancel():
            self._late = under_way
            under_way.add_done_callback(partial(self._keep_late, keep))
            log.warning("the folder of adapters '%s' does not answer: %s", self._folder, self._told_meanwhile)
        return None

    @property
    def _told_meanwhile(self) -> str:
        return "those of the last look are listed" if self._is_known else "what is in it is not known yet"

    def _begin(self, look: Callable[[], T]) -> T:
        """On the folder's thread."""
        self._begun_s = self._clock()
        return look()

    def _keep_late(self, keep: Callable[[T], None], found: asyncio.Future[T]) -> None:
        if found.cancelled():
            return
        error = found.exception()
        if error is None:
            keep(found.result())
        else:
            log.warning("the folder of adapters '%s' has failed: %s", self._folder, error)
