"""Requests whose adapter has to be read first: they wait beside the thread that takes requests, in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trireme.llm.intake import EngineBusyError


class AdapterLoads:
    """One thread for all of them, since adapters are read one after another."""

    def __init__(self, max_waiting: int) -> None:
        """`max_waiting` requests may wait; 0: as many as come."""
        self._max_waiting = max_waiting
        self._waiting = 0
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "llm-adapters")

    def add(self, begin: Callable[[], None]) -> None:
        """Lets `begin`, which reads the adapter and must not raise, be called in the thread of this.

        Raises EngineBusyError where too many wait.
        """
        with self._lock:
            if self._max_waiting and self._waiting >= self._max_waiting:
                raise EngineBusyError(
                    f"{self._waiting} requests wait for their adapters to be read (max_waiting); try again later"
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
