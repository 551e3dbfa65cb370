"""One alarm that can be moved to an earlier moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from trireme.core.clock import Clock


class TimerHandle(Protocol):
    """A call that was put off."""

    def cancel(self) -> None:
        """The call will not be made."""


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
"""Puts a call off by so many seconds, as an event loop does."""


class Alarm:
    """Calls back once, at the earliest of the moments asked for; may ring a little early, never silently late."""

    __slots__ = ("_at_ns", "_call_later", "_callback", "_clock", "_handle")

    def __init__(self, callback: Callable[[], None], clock: Clock, call_later: CallLater | None) -> None:
        self._callback = callback
        self._clock = clock
        self._call_later = call_later
        self._handle: TimerHandle | None = None
        self._at_ns = 0

    @property
    def is_set(self) -> bool:
        """Whether it is going to ring."""
        return self._handle is not None

    def set(self, at_ns: int) -> None:
        """Rings at this moment, unless it was going to ring earlier anyway."""
        if self._handle is not None:
            if self._at_ns <= at_ns:
                return
            self._handle.cancel()
        if self._call_later is None:
            self._call_later = asyncio.get_running_loop().call_later
        self._at_ns = at_ns
        self._handle = self._call_later(max(0, at_ns - self._clock()) / 1e9, self._ring)

    def _ring(self) -> None:
        self._handle = None
        self._callback()
