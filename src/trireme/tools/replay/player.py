"""Plays calls back at their pace: one thread says when, others send, and calls of a sequence keep their order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from trireme.tools.record.reading import CallPlace

_LOOK_S = 0.1
_LAST_ANSWERS_S = 5.0
"""So long is waited for requests under way where the replay is ended early."""

SequenceKey = tuple[str, int | str]


@dataclass(frozen=True, slots=True)
class Job:
    """A call that is due."""

    number: int
    place: CallPlace
    due_ns: int | None
    """When it should have been sent; None where it is sent as soon as it can."""


Play = Callable[[Job], bool]
"""Sends one call; whether to go on. Each thread has its own."""


class Player:
    """One replay. What `play` does happens on up to `connections` threads, which are started as they are needed; what
    it raises ends the replay, and is raised by `run`."""

    def __init__(
        self,
        places: Sequence[CallPlace],
        speed: float | None,
        connections: int,
        new_play: Callable[[], Play],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._places = places
        self._speed = speed
        self._connections = connections
        self._new_play = new_play
        self._clock = clock
        self._ready: SimpleQueue[Job | None] = SimpleQueue()  # None ends a thread
        self._room = threading.Semaphore(2 * connections)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._idle_count = 0
        self._waiting: dict[SequenceKey, deque[Job]] = {}  # sequences with a call under way, and what follows it
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def run(self) -> bool:
        """Plays all; False where `play` ended it early. Ctrl+C, and what a thread has raised, is passed on."""
        try:
            self._give_all()
            self._end_threads()
            for thread in self._threads:
                while thread.is_alive() and not self._stop.is_set():  # a join without end would not be interrupted
                    thread.join(_LOOK_S)
        except BaseException:
            self._end_early()
            raise
        if self._stop.is_set():
            self._end_early()
        if self._failure is not None:
            raise self._failure
        return not self._stop.is_set()

    def _end_threads(self) -> None:
        for _ in self._threads:
            self._ready.put(None)

    def _end_early(self) -> None:
        self._stop.set()
        self._end_threads()
        end_s = time.monotonic() + _LAST_ANSWERS_S
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _give_all(self) -> None:
        began_ns = self._clock()
        first_ns = self._places[0].at_ns if self._places else 0
        for number, place in enumerate(self._places):
            due_ns = None
            if self._speed is not None:
                due_ns = began_ns + int((place.at_ns - first_ns) / self._speed)
                self._wait_until(due_ns)
            if self._stop.is_set():
                return
            self._give(Job(number, place, due_ns))

    def _wait_until(self, due_ns: int) -> None:
        while (left_ns := due_ns - self._clock()) > 0 and not self._stop.is_set():
            self._stop.wait(min(left_ns / 1e9, _LOOK_S))

    def _give(self, job: Job) -> None:
        key = _key(job)
        if key is not None:
            with self._lock:
                if key in self._waiting:
                    self._waiting[key].append(job)
                    return
                self._waiting[key] = deque()
        while not self._room.acquire(timeout=_LOOK_S):
            if self._stop.is_set():
                return
        self._ready.put(job)
        if self._idle_count < self._ready.qsize() and len(self._threads) < self._connections:
            thread = threading.Thread(target=self._work, name="replay", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        try:
            self._play_all()
        except BaseException as error:
            self._failure = error
            self._stop.set()

    def _play_all(self) -> None:
        play = self._new_play()
        while not self._stop.is_set():
            job = self._next()
            if job is None:
                return
            self._room.release()
            following: Job | None = job
            while following is not None and not self._stop.is_set():
                if not play(following):
                    self._stop.set()
                following = self._following(following)

    def _next(self) -> Job | None:
        with self._lock:
            self._idle_count += 1
        try:
            return self._ready.get()
        finally:
            with self._lock:
                self._idle_count -= 1

    def _following(self, job: Job) -> Job | None:
        """The next call of the same sequence, which this thread sends."""
        key = _key(job)
        if key is None:
            return None
        with self._lock:
            waiting = self._waiting[key]
            if waiting:
                return waiting.popleft()
            del self._waiting[key]
            return None


def _key(job: Job) -> SequenceKey | None:
    place = job.place
    return (place.model, place.correlation_id) if place.correlation_id else None
