"""Ends the process where no Python runs any more: a timer in C, which needs no lock of the interpreter."""

from __future__ import annotations

import faulthandler
import threading
import time

_LONGER_S = 5.0
"""So much longer than a step may take, so that a thread that can still tell clients of a hang does so."""
_ARM_EVERY_S = 1.0
_STDERR = 2


class HangTimer:
    """Runs out unless it is armed again and again, which native code prevents that keeps the interpreter's lock.

    Then the stacks of all threads go to the worker's standard error, and the process ends. One per process: the timer
    is Python's own. Methods may be called from any thread.
    """

    def __init__(self, step_timeout_s: float) -> None:
        self._timeout_s = step_timeout_s + _LONGER_S
        self._lock = threading.Lock()
        self._armed_at: float | None = None

    def arm(self) -> None:
        """Begins anew."""
        with self._lock:
            now = time.monotonic()
            if self._armed_at is None or now - self._armed_at > _ARM_EVERY_S:
                faulthandler.dump_traceback_later(self._timeout_s, exit=True, file=_STDERR)
                self._armed_at = now

    def disarm(self) -> None:
        """Until it is armed again; but not right behind that, since what it was armed for may be about to begin."""
        with self._lock:
            if self._armed_at is not None and time.monotonic() - self._armed_at > _ARM_EVERY_S:
                faulthandler.cancel_dump_traceback_later()
                self._armed_at = None

    def stop(self) -> None:
        """For good."""
        with self._lock:
            if self._armed_at is not None:
                faulthandler.cancel_dump_traceback_later()
                self._armed_at = None
