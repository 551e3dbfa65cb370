"""The queue of grammars that are to be checked: each has a short turn first, and those that need more stand behind
those that have had none, so that a grammar that takes a moment does not wait for all that take seconds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trireme.llm.admission_errors import IsWanted, NotWantedError

TURN_SECONDS: Final = (0.02, 0.3, 5.0)
"""How long a grammar is checked at its first turn, at the second and at the last, in seconds of processor time. Those
that people write take milliseconds, with a vocabulary of 150,000 tokens as well."""
AT_A_TIME: Final = 4
"""So many grammars are checked at once."""
_MOST_AT_FIRST_TURN: Final = 3
_MOST_BEHIND: Final = (AT_A_TIME, 3, 2)
"""So many of them at this turn or a later one: there is always a place for a first turn."""
MAX_SLOW: Final = 16
"""So many wait for their second or last turn."""
MAX_IN_QUEUE: Final = MAX_SLOW + _MOST_BEHIND[1] + _MOST_AT_FIRST_TURN
"""So many threads have to ask at once, that none of those that wait for a later turn takes that of one that is new."""


class CheckUnavailableError(RuntimeError):
    """A grammar could not be checked, for no fault of its own; the text says why."""


class CheckQueue:
    """May be used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: tuple[deque[object], ...] = tuple(deque() for _ in TURN_SECONDS)
        """By the number of their turn."""
        self._running = [0] * len(TURN_SECONDS)
        self._is_closed = False

    @contextmanager
    def turn(self, number: int, is_wanted: IsWanted) -> Iterator[None]:
        """Waits for a turn of that number, from 0 on, which ends with the context.

        Raises CheckUnavailableError where too many wait, or at the end, and NotWantedError where nobody waits for it
        any more.
        """
        own = object()
        with self._changed:
            self._join(number, own)
            try:
                while not self._is_next(number, own):
                    if self._is_closed:
                        raise CheckUnavailableError("the engine is closed")
                    if not is_wanted():
                        raise NotWantedError
                    self._changed.wait()
                self._running[number] += 1
            finally:
                self._waiting[number].remove(own)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running[number] -= 1
                self._changed.notify_all()

    def look_again(self) -> None:
        """To be called when it may be that one is not wanted any more."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Those that wait are refused."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _join(self, number: int, own: object) -> None:
        slow = sum(map(len, self._waiting[1:]))
        if number and slow >= MAX_SLOW:
            raise CheckUnavailableError(
                f"{slow} grammars wait that take longer than {TURN_SECONDS[0]:g} s to compile, and this is another; "
                "try again later, or make it simpler"
            )
        self._waiting[number].append(own)

    def _is_next(self, number: int, own: object) -> bool:
        if self._is_closed or self._waiting[number][0] is not own or not self._has_place(number):
            return False
        return not any(self._waiting[sooner] and self._has_place(sooner) for sooner in range(number))

    def _has_place(self, number: int) -> bool:
        if sum(self._running) >= AT_A_TIME:
            return False
        if not number:
            return self._running[0] < _MOST_AT_FIRST_TURN
        return all(sum(self._running[turn:]) < _MOST_BEHIND[turn] for turn in range(1, number + 1))
