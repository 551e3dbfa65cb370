"""A loop over non-blocking sockets, with a clock that is fine enough to send on time."""

from __future__ import annotations

import ctypes
import select
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
_EVENTS_PER_TURN = 256
_SET_TIMER_SLACK = 29


class EventLoop:
    """Descriptors and who is told when they are ready."""

    __slots__ = ("_callbacks", "_epoll")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        _make_timers_exact()

    def add(self, descriptor: int, events: int, callback: Callable[[int], None]) -> None:
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def remove(self, descriptor: int) -> None:
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def turn(self, wait_s: float | None) -> None:
        """Waits no longer than this, for ever with None, and calls back whoever is ready."""
        if wait_s is None:
            events = self._epoll.poll(-1, _EVENTS_PER_TURN)
        else:
            # epoll counts in milliseconds; select does not, and an epoll is a descriptor itself.
            if wait_s > 0:
                select.select((self._epoll,), (), (), wait_s)
            events = self._epoll.poll(0, _EVENTS_PER_TURN)
        callbacks = self._callbacks
        for descriptor, event in events:
            callback = callbacks.get(descriptor)
            if callback is not None:
                callback(event)

    def close(self) -> None:
        self._epoll.close()


def _make_timers_exact() -> None:
    """The kernel adds fifty microseconds to every wait of a process that does not mind."""
    try:
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass
