"""Gives memory that requests took back to the system once they are gone: the allocators would keep it for the next."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final

from trireme.frontends.inflight import InflightBytes

_INTERVAL_S: Final = 4.0
_MUCH_BYTES: Final = 32 << 20
"""What requests have to have taken in an interval before it is worth looking."""


async def keep_giving_back(inflight: InflightBytes) -> None:
    """Looks every few seconds until it is cancelled."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    had_much = False
    while trim is not None:
        await asyncio.sleep(_INTERVAL_S)
        has_much = inflight.take_peak() > max(_MUCH_BYTES, 2 * inflight.used_bytes)
        is_due, had_much = has_much or had_much, has_much  # once more behind the last of them, who may be still at work
        if is_due:
            gc.collect()  # Python keeps a few freed objects of each kind, of which each may hold a megabyte back
            await asyncio.to_thread(trim, 0)
