"""Gives memory that requests took back to the system once they are gone: the allocators would keep it for the next."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import Final

from trireme.frontends.inflight import InflightBytes

_INTERVAL_S: Final = 4.0
_MUCH_BYTES: Final = 32 << 20
"""What requests have to have taken in an interval before it is worth looking."""
_MUCH_BLOCKS: Final = 400_000
"""The same in objects of Python: what is too small to be counted may be many."""
_MOST_BLOCKS: Final = 250_000
"""While there are more than so many that came behind the start, they are not looked through: that would hold the event
loop for 0.1 to 0.15 s per million."""


class MemoryWatch:
    """What requests have taken since the last look."""

    def __init__(self, inflight: InflightBytes) -> None:
        self._inflight = inflight
        self._first_blocks = self._most_blocks = sys.getallocatedblocks()
        self._had_much = False
        self._owes_collection = False
        self._is_long = False

    def look(self) -> bool:
        """Whether there is something to give back."""
        inflight, blocks = self._inflight, sys.getallocatedblocks()
        has_much = inflight.take_peak() > max(_MUCH_BYTES, 2 * inflight.used_bytes)
        if blocks < self._most_blocks - _MUCH_BLOCKS:
            has_much, self._most_blocks = True, blocks
        self._most_blocks = max(self._most_blocks, blocks)
        self._is_long = blocks - self._first_blocks > _MOST_BLOCKS
        is_due = has_much or self._had_much  # once more behind the last of them, who may be still at work
        self._had_much = has_much
        return is_due or (self._owes_collection and not self._is_long)

    def clear_free_lists(self) -> None:
        """Python keeps a few freed objects of each kind, of which each may hold a megabyte back. Only a collection of
        everything lets go of them, which waits until there is not too much to look through."""
        self._owes_collection = self._is_long
        if not self._is_long:
            gc.collect()


async def keep_giving_back(inflight: InflightBytes) -> None:
    """Looks every few seconds until it is cancelled."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    watch = MemoryWatch(inflight)
    while trim is not None:
        await asyncio.sleep(_INTERVAL_S)
        if watch.look():
            watch.clear_free_lists()
            await asyncio.to_thread(trim, 0)
