"""Long work on a thread, in pieces: between two of them it gives way to the event loop, and ends where nobody waits.

A thread that computes keeps the interpreter from the loop for a while at each step that the loop makes, and with two of
them the loop gets next to nothing: a connection is then read a hundred times more slowly. So one piece is worked on at
a time, whoever's it is, and behind it the thread sleeps for a moment.
"""

from __future__ import annotations

import threading
from time import perf_counter, sleep
from typing import Final, Protocol

_WORK_S: Final = 0.001
"""After so long the next piece waits."""
_LEAST_MOMENT_S: Final = 0.0001
_MOST_MOMENT_S: Final = 0.002
_HELD_UP_S: Final = 0.0005
"""A thread that gets to run so much later than it wanted to has had the loop before it, which may have more to do."""
_TURN_S: Final = 0.05
"""What a thread waits for its turn at most: one that waits for something else while it has the turn holds up nobody."""


class Job(Protocol):
    """What a thread works on."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for its result."""


class UnwantedError(Exception):
    """Nobody waits for the result of the work any more."""


class _Thread(threading.local):
    job: Job | None = None
    is_at_work = False
    due_s = 0.0


class _FairLock:
    """Lets one of the threads work, in the order in which they come."""

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._turn = threading.Lock()
        self._moment_s = _LEAST_MOMENT_S

    def take(self) -> bool:
        """Whether it came in time."""
        if not self._next.acquire(timeout=_TURN_S):
            return False
        try:
            return self._turn.acquire(timeout=_TURN_S)
        finally:
            self._next.release()

    def leave(self) -> None:
        self._turn.release()

    def pause(self) -> None:
        """Sleeps, longer while the loop has much to do."""
        moment_s = self._moment_s
        began_s = perf_counter()
        sleep(moment_s)
        if perf_counter() - began_s - moment_s > _HELD_UP_S:
            self._moment_s = min(_MOST_MOMENT_S, 2 * moment_s)
        else:
            self._moment_s = max(_LEAST_MOMENT_S, moment_s / 2)


_thread = _Thread()
_fair_lock = _FairLock()


def begin(job: Job) -> None:
    """What this thread works on from now on."""
    _thread.job = job


def end() -> None:
    """The thread has done its work."""
    _thread.job = None
    _leave()


def give_way() -> None:
    """In front of each piece of what may be long work: raises UnwantedError where it need not go on. Does nothing where
    no job was begun, as on the event loop's thread."""
    thread = _thread
    job = thread.job
    if job is None or (thread.is_at_work and perf_counter() < thread.due_s):
        return
    if not job.is_wanted:
        raise UnwantedError
    if thread.is_at_work:
        _fair_lock.pause()
        _leave()
    thread.is_at_work = _fair_lock.take()
    thread.due_s = perf_counter() + _WORK_S


def _leave() -> None:
    if _thread.is_at_work:
        _thread.is_at_work = False
        _fair_lock.leave()
