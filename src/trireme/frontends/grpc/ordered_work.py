"""Long work beside the event loop, without losing its place: what comes behind it in a call waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Step = tuple[Callable[[], Any] | None, Callable[..., None]]
"""The work, where there is any, and what is called next, with the work's result."""


class OrderedWork:
    """What goes one way in one call, one step after the other. Only the work itself leaves the event loop's thread;
    an error, of the work or of what follows it, goes to `fail`."""

    __slots__ = ("_fail", "_loop", "_running", "_threads", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor, fail: Callable[[Exception], None]
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._fail = fail
        self._running: Future[Any] | None = None
        self._waiting: deque[Step] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a step is not done yet."""
        return self._running is not None or bool(self._waiting)

    def compute(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Does the work on a thread in its turn and calls `then` with the result. A step that asks for more work
        keeps its turn until that is done too."""
        if self._running is None:
            self._start(work, then)
        else:
            self._waiting.append((work, then))

    def follow(self, then: Callable[[], None]) -> None:
        """Calls this in its turn: now, where nothing is under way."""
        if self.is_busy:
            self._waiting.append((None, then))
        else:
            self._attempt(then)

    def drop(self) -> None:
        """Nobody waits any more: what has not begun never will, and results are thrown away."""
        self._waiting.clear()
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    def _start(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        running = self._running = self._threads.submit(work)
        running.add_done_callback(partial(self._come_back, then))

    def _come_back(self, then: Callable[[Any], None], done: Future[Any]) -> None:
        """On the thread that did the work, or on the loop's where it was cancelled."""
        if done.cancelled():
            return
        try:
            self._loop.call_soon_threadsafe(self._hand_over, then, done)
        except RuntimeError:
            pass  # the loop has ended before its work, and every call with it

    def _hand_over(self, then: Callable[[Any], None], done: Future[Any]) -> None:
        if done is not self._running:
            return  # dropped
        self._running = None
        try:
            then(done.result())
        except Exception as error:
            self._fail(error)
        finally:
            del done  # the error's traceback would keep it, and it keeps the error
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._running is None:
            work, then = self._waiting.popleft()
            if work is None:
                self._attempt(then)
            else:
                self._start(work, then)

    def _attempt(self, then: Callable[[], None]) -> None:
        try:
            then()
        except Exception as error:
            self._fail(error)
