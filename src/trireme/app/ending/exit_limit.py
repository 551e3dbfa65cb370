"""The time by which the process ends, whatever its threads still wait for: a file system that does not answer, say."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import CoroutineType, FrameType
from typing import Any, Final

LEAST_S: Final = 2.0
"""What threads have that do no more than end, however little of the time is left."""
_ANSWERS_S: Final = 5.0
"""What a shutdown out of time may still take for the errors that it answers with, and for ending its processes."""
_TELLING_S: Final = 1.0
"""How long the last words may take: whoever reads them may be what is waited for."""
_PACKAGE: Final = str(Path(__file__).parents[2]) + os.sep


class ExitLimit:
    """Begins once the server is to end. A thread of its own watches it, which nothing waits for: Python itself would
    wait for the threads of pools at its end, and the event loop for those that it was lent, without a limit."""

    def __init__(self, exit_timeout_s: float) -> None:
        self._exit_timeout_s = exit_timeout_s
        self._asked: SimpleQueue[None] = SimpleQueue()  # which a signal handler may put into whatever it interrupts
        self._last_s = 0.0
        self._task: asyncio.Task[Any] | None = None
        self.end_s = 0.0
        """By when the shutdown is to be over, by `time.monotonic`, once it was begun."""

    def watch(self) -> None:
        """Around the running task, which serves. Before any signal, whose handler must start no thread."""
        self._task = asyncio.current_task()
        threading.Thread(target=self._wait, name="exit-limit", daemon=True).start()

    def begin(self) -> None:
        """The server is to end; what says so again changes nothing. Safe in a signal handler."""
        if not self.end_s:
            self.end_s = time.monotonic() + self._exit_timeout_s
            self._last_s = self.end_s + _ANSWERS_S
            self._asked.put(None)

    def finish(self) -> None:
        """The shutdown is over: threads have the rest of its time."""
        self.begin()
        self._last_s = max(time.monotonic() + LEAST_S, self.end_s)

    def _wait(self) -> None:
        self._asked.get()
        while (left_s := self._last_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.5))
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        teller.join(_TELLING_S)
        os._exit(1)

    def _tell(self) -> None:
        waits = ", ".join(dict.fromkeys([*_waiting_threads(), *self._waiting_task()])) or "an unknown part of itself"
        with suppress(OSError, ValueError):
            text = f"error: out of the exit timeout of {self._exit_timeout_s:g} s, the process ends without"
            print(f"{text} what it still waits for: {waits}", file=sys.stderr, flush=True)
        for flush in (logging.shutdown, sys.stdout.flush):
            with suppress(OSError, ValueError):
                flush()

    def _waiting_task(self) -> Iterator[str]:
        """Where the shutdown is; nothing once it is over."""
        if self._task is None or self._task.done():
            return
        waiting: Any = self._task.get_coro()
        place = None
        if waiting.cr_running:  # which is what its thread is told for
            return
        while isinstance(waiting, CoroutineType) and waiting.cr_frame is not None:
            place = _place(waiting.cr_frame) or place
            waiting = waiting.cr_await
        if place is not None:
            yield place


def _waiting_threads() -> Iterator[str]:
    """Where those are that Python waits for, and the event loop's where something holds it up. Not those that only wait
    for others, or for work."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        is_main = thread is threading.main_thread()
        if frame is None or (thread.daemon and not is_main):
            continue
        waits_for_others = frame.f_code.co_filename in (threading.__file__, concurrent.futures.thread.__file__)
        while frame is not None and _place(frame) is None:
            frame = frame.f_back
        if frame is None:
            if not is_main and not waits_for_others:
                yield f"the thread {thread.name}"
        elif not (is_main and frame.f_code.co_name == "run"):  # of the loop, which waits for the task
            yield f"{_place(frame)}"


def _place(frame: FrameType) -> str | None:
    """Of our own code."""
    path = frame.f_code.co_filename
    if not path.startswith(_PACKAGE):
        return None
    return f"{frame.f_code.co_name} ({path.removeprefix(_PACKAGE)} line {frame.f_lineno})"
