"""A second process that puts things back where the first one ended without having done so."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self

_RELEASED = b"."


class DeathWatchdog:
    """Within it, the death of this process, be it by SIGKILL, runs `put_back` in another one.

    The other process is forked here, so `put_back` knows what was known then.
    """

    def __init__(self, put_back: Callable[[], object]) -> None:
        reading, self._writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._writing)
            _watch(reading, put_back)
        os.close(reading)

    def release(self) -> None:
        """All has been put back, or nothing is to be."""
        if self._writing < 0:
            return
        with contextlib.suppress(OSError):
            os.write(self._writing, _RELEASED)
        os.close(self._writing)
        self._writing = -1
        os.waitpid(self._child, 0)

    def leave(self) -> None:
        """What was to be put back may not be: it is left to the other process, which nobody waits for."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.release()
        else:
            self.leave()


def _watch(reading: int, put_back: Callable[[], object]) -> None:
    """Runs in the other process, and ends it."""
    try:
        os.setsid()  # a terminal that goes away takes its own processes along
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # whoever reads what the first process tells is not to wait for this one
            os.dup2(nowhere, stream)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        if os.read(reading, 1) != _RELEASED:
            put_back()
    finally:
        os._exit(0)
