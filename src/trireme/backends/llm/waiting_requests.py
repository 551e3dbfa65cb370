"""Requests that need something first, an adapter that is read or a grammar that is compiled: they wait beside the
thread that takes requests, in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trireme.llm.intake import EngineBusyError


class WaitingRequests:
    """One thread for all of them, since what they need is made one after another."""

    def __init__(self, max_waiting: int, needed: str) -> None:
        """`max_waiting` requests may wait; 0: as many as come. `needed`: what for, as errors tell it."""
        self._max_waiting = max_waiting
        self._needed = needed
        self._waiting = 0
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "llm-waiting")

    def add(self, begin: Callable[[], None]) -> None:
        """Lets `begin`, which makes what is needed and must not raise, be called in the thread of this.

        Raises EngineBusyError where too many wait.
        """
        with self._lock:
            if self._max_waiting and self._waiting >= self._max_waiting:
                raise EngineBusyError(
                    f"{self._waiting} requests wait for their {self._needed} (max_waiting); try again later"
                )
            self._waiting += 1
        self._thread.submit(self._run, begin)

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        self._thread.shutdown()

    def _run(self, begin: Callable[[], None]) -> None:
        with self._lock:
            self._waiting -= 1
        begin()
