"""The signals that end the server."""

from __future__ import annotations

import asyncio
import os
import signal
from types import FrameType

from trireme.app.ending.exit_limit import ExitLimit
from trireme.core.exit_codes import INTERRUPTED


class EndSignals:
    """The first one begins the shutdown, and its time; a second Ctrl+C ends that, and workers go with this process."""

    def __init__(self, limit: ExitLimit) -> None:
        self._limit = limit
        self._first: int | None = None
        self.has_come = asyncio.Event()

    def take(self, number: int, frame: FrameType | None) -> None:
        """Python's own handler. It is called although a call holds up the loop, for a pipe that nobody reads, say."""
        if self._first is None:
            self._first = number
            self._limit.begin()
        elif number == signal.SIGINT:
            os._exit(INTERRUPTED)

    def listen(self) -> None:
        """From now on the running loop is told, and before of what came until now."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._tell, number)
            signal.signal(number, self.take)  # in place of the loop's, which does nothing: a descriptor wakes it
        if self._first is not None:
            self._tell(self._first)

    def _tell(self, number: int) -> None:
        if self.has_come.is_set():
            return
        self.has_come.set()
        try:
            print(f"Signal ({int(number)}) received.", flush=True)
        except OSError:  # whoever read our output is gone; the shutdown goes on
            pass
