"""Memory in which a front-end process counts for the server process, which can read it whenever it is asked."""

from __future__ import annotations

import mmap
import os
from typing import Final

from trireme.app.leases.counts import (
    BYTES,
    COUNT,
    INFLIGHT_AT,
    SIZE,
    SUCCESS_AT,
    SWITCH_AT,
    CountsWriter,
    add_counts,
)
from trireme.observe.stats import ModelStats

_SIZE_BYTES: Final = SIZE * BYTES


class SharedCounts:
    """The same memory in both processes. It stays as it was when the process that wrote it is gone.

    Beside the counts is a switch, with which the server process has the other begin no further request: whoever is told
    of a change behind that, and asks, is not answered from before it.
    """

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over."""
        self.fd = fd
        self._map = mmap.mmap(fd, _SIZE_BYTES)
        self._view = memoryview(self._map).cast("q")
        self._before = [0] * COUNT
        self.writer = CountsWriter(self._map, self._view)
        """Shows what has been counted."""

    @classmethod
    def create(cls) -> SharedCounts:
        """New memory; raises OSError."""
        fd = os.memfd_create("trireme-counts", os.MFD_CLOEXEC)
        os.ftruncate(fd, _SIZE_BYTES)
        return cls(fd)

    @property
    def is_shut(self) -> bool:
        """Whether no further request is to be begun."""
        return self._view[SWITCH_AT] != 0

    def shut(self) -> None:
        """Has the other process begin no further request, from this moment on."""
        self._view[SWITCH_AT] = 1

    def bring_into(self, stats: ModelStats) -> None:
        """Adds what has been counted since the last time."""
        now = self._view[:COUNT].tolist()
        if now != self._before:
            add_counts(stats, self._before, now)
            self._before = now

    @property
    def request_count(self) -> int:
        """Requests that were answered well, as far as they were brought in."""
        return self._before[SUCCESS_AT]

    @property
    def pending_count(self) -> int:
        """Requests that wait in the other process."""
        return self._view[0]

    @property
    def inflight_count(self) -> int:
        """Requests that the other process has begun and not answered."""
        return self._view[INFLIGHT_AT]

    def begin(self, inflight_count: int) -> bool:
        """Shows one more of them, which may be answered at once; false where no further one is to be begun."""
        if self._view[SWITCH_AT]:
            return False
        self._view[INFLIGHT_AT] = inflight_count
        return True

    def show_inflight(self, count: int) -> None:
        """Tells the server process of them."""
        self._view[INFLIGHT_AT] = count

    def close(self) -> None:
        """Lets go of the memory."""
        self._view.release()
        self._map.close()
        os.close(self.fd)
