"""What requests and unread answers take in the server's memory: counted for all of them, and for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from trireme.core.errors import UnavailableError

CHARGED_FROM_BYTES: Final = 4096
"""Smaller requests are not counted: they are bounded by the number of connections and calls."""
LARGE_ANSWER_BYTES: Final = 1 << 20
"""Larger answers are refused where there is no room for them."""
_WAIT_S: Final = 2.0
_POLL_S: Final = 0.05
_UNLIMITED: Final = 1 << 62
_SEND_LESS: Final = "Send, or ask for, less at once"
"""It is this client's own: a later attempt would end in the same way."""


class InflightBytes:
    """The sum over all connections, and the two limits."""

    __slots__ = ("_peak_bytes", "connection_limit_bytes", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = _UNLIMITED, connection_limit_bytes: int = _UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.connection_limit_bytes = connection_limit_bytes
        self.used_bytes = 0
        self._peak_bytes = 0

    def add(self, size_bytes: int) -> None:
        """So much more, or less, is there."""
        self.used_bytes += size_bytes
        if self.used_bytes > self._peak_bytes:
            self._peak_bytes = self.used_bytes

    def take_peak(self) -> int:
        """The most that was there since the last call."""
        peak, self._peak_bytes = self._peak_bytes, self.used_bytes
        return peak


class ConnectionBytes:
    """One connection's share. Used on the event loop's thread."""

    __slots__ = ("_all", "_is_closed", "_waiting", "held_bytes", "unsent_bytes")

    def __init__(self, all_bytes: InflightBytes) -> None:
        self._all = all_bytes
        self.held_bytes = 0
        """Of requests, as received and as inflated, and of large answers that are on their way to the front-end process
        that holds the socket."""
        self.unsent_bytes = 0
        """Of answers that the client has not taken yet."""
        self._is_closed = False
        self._waiting: list[tuple[float, Callable[[], None], Callable[[str], None]]] = []

    @property
    def all_bytes(self) -> int:
        """What all connections hold."""
        return self._all.used_bytes

    def hold(self, size_bytes: int) -> None:
        """So much more, or less, is held; nothing is where the connection is gone."""
        if not self._is_closed:
            self.held_bytes += size_bytes
            self._all.add(size_bytes)

    def set_unsent(self, size_bytes: int) -> None:
        """So much waits to be read."""
        if not self._is_closed:
            self._all.add(size_bytes - self.unsent_bytes)
            self.unsent_bytes = size_bytes

    def excess(self, more_bytes: int = 0) -> str:
        """Which limit is, or would be, exceeded, as a sentence; empty where none is."""
        own = self.held_bytes + self.unsent_bytes + more_bytes
        if own > self._all.connection_limit_bytes:
            limit = self._all.connection_limit_bytes
            return _sentence("this connection", own, limit, "max-connection-inflight-bytes", _SEND_LESS)
        used, limit = self._all.used_bytes + more_bytes, self._all.limit_bytes
        if used > limit:
            advice = _SEND_LESS if own > limit else "Try again later"
            return _sentence("the server", used, limit, "max-inflight-bytes", advice)
        return ""

    def check(self, more_bytes: int = 0) -> None:
        """Raises UnavailableError where a limit is, or would be, exceeded."""
        excess = self.excess(more_bytes)
        if excess:
            raise UnavailableError(excess)

    def fits_never(self, size_bytes: int) -> str:
        """The sentence for what is larger than a limit by itself; empty where it is not."""
        flags = {
            "max-connection-inflight-bytes": self._all.connection_limit_bytes,
            "max-inflight-bytes": self._all.limit_bytes,
        }
        for flag, limit in flags.items():
            if size_bytes > limit:
                return (
                    f"a request of {size_bytes} bytes is larger than the {limit} bytes that all together may take. "
                    f"Send less at once, or use --{flag} to increase the limit."
                )
        return ""

    def wait_for_room(self, resume: Callable[[], None], refuse: Callable[[str], None]) -> None:
        """Calls `resume` when there is room again, or `refuse` with the reason where there is none for too long."""
        if any(waiting[1] == resume for waiting in self._waiting):
            return
        self._waiting.append((monotonic() + _WAIT_S, resume, refuse))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(_POLL_S, self._look)

    def close(self) -> None:
        """The connection is gone."""
        self.hold(-self.held_bytes)
        self.set_unsent(0)
        self._is_closed = True
        self._waiting.clear()

    def _look(self) -> None:
        if not self._waiting:
            return
        excess, now_s, looked_at = self.excess(), monotonic(), self._waiting
        self._waiting = [waiting for waiting in looked_at if excess and now_s < waiting[0]]
        if self._waiting:
            asyncio.get_running_loop().call_later(_POLL_S, self._look)
        for until_s, resume, refuse in looked_at:
            if not excess:
                resume()
            elif now_s >= until_s:
                refuse(excess)


def _sentence(whose: str, size_bytes: int, limit_bytes: int, flag: str, advice: str) -> str:
    return (
        f"requests and unread answers of {whose} would take {size_bytes} bytes, more than the {limit_bytes} bytes that "
        f"are allowed. {advice}, or use --{flag} to increase the limit."
    )
