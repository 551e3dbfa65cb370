"""Ends the process though a thread still waits, which Python would wait for: for a file system that does not answer."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType

LEAST_S = 2.0
"""What threads have that do no more than end, however little of the time is left."""


class WaitingThreads:
    """Around an event loop and its threads: once the server has ended, they have the rest of its time to end, too."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> WaitingThreads:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def end_by(self, end_s: float) -> None:
        """By that time of `time.monotonic` the process is over, unless all have ended."""
        self._timer = threading.Timer(max(LEAST_S, end_s - time.monotonic()), _end)
        self._timer.daemon = True
        self._timer.start()


def _end() -> None:
    with suppress(OSError, ValueError):
        print("error: a thread still waits for a file; the process ends without it", file=sys.stderr, flush=True)
    for flush in (logging.shutdown, sys.stdout.flush):
        with suppress(OSError, ValueError):
            flush()
    os._exit(1)
