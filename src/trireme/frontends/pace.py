"""Whether a client keeps up: its heads, bodies and reading of answers looked at every few seconds, and idle times."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Final

HELD_BACK: Final = "is_held_back"
"""The name under which transports say whether their client was told to wait before it sends more."""
_NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """How slow a client may be."""

    idle_timeout_s: float = 600.0
    """`--connection-idle-timeout`: how long a connection may be without a request; 0 is for ever."""
    header_timeout_s: float = 60.0
    """`--request-header-timeout`: how long the head of a request may take."""
    min_bytes_per_s: int = 100
    """`--min-transfer-rate`: how fast bodies have to arrive and answers to be read."""
    slow_timeout_s: float = 60.0
    """How long they may be slower than that."""


def restart_if_held_back(pace: Pace, transport: asyncio.BaseTransport | None) -> bool:
    """Whether the client was told to wait; the time that it has to go on begins when it need not."""
    if transport is None or not transport.get_extra_info(HELD_BACK):
        return False
    pace.restart()
    return True


class Pace:
    """What one connection has moved. The connection counts, a sweep asks."""

    __slots__ = ("_began_s", "_idle_since_s", "_limits", "_unsent", "_window_s", "moved_bytes", "was_used")

    def __init__(self, limits: PaceLimits) -> None:
        self._limits = limits
        self.moved_bytes = 0
        """Bytes of a body that arrived, or of answers that were written, since `begin_window`."""
        self.was_used = True
        """Whether a request came since somebody set this to False."""
        self._began_s = self._window_s = monotonic()  # of the head that is not complete, and of what moves
        self._idle_since_s = 0.0
        self._unsent = _NOTHING  # when the window began, where answers are being read

    def begin_head(self) -> None:
        """The first bytes of a request are there."""
        self._began_s = monotonic()

    def begin_window(self, unsent_bytes: int = _NOTHING) -> None:
        """A body begins to arrive, or answers wait to be read."""
        self._window_s = monotonic()
        self._unsent = unsent_bytes
        self.moved_bytes = 0

    def restart(self) -> None:
        """Nothing that the client has begun to send has taken any time yet."""
        self.begin_head()
        self.begin_window()

    def is_head_late(self, now_s: float) -> bool:
        """Whether the head took too long."""
        return now_s - self._began_s > self._limits.header_timeout_s

    def is_body_slow(self, now_s: float) -> bool:
        """Whether too little of a body arrived."""
        return self._is_slow(now_s, self.moved_bytes, _NOTHING)

    def is_reading_slow(self, now_s: float, unsent_bytes: int) -> bool:
        """Whether too little of the answers was read, now that so much is left."""
        return self._is_slow(now_s, self._unsent + self.moved_bytes - unsent_bytes, unsent_bytes)

    def is_idle_long(self, now_s: float) -> bool:
        """Whether no request came for too long."""
        if self.was_used or not self._idle_since_s:
            self.was_used = False
            self._idle_since_s = now_s
        timeout_s = self._limits.idle_timeout_s
        return bool(timeout_s) and now_s - self._idle_since_s > timeout_s

    def _is_slow(self, now_s: float, moved_bytes: int, unsent_bytes: int) -> bool:
        elapsed_s = now_s - self._window_s
        if elapsed_s <= self._limits.slow_timeout_s:
            return False
        if moved_bytes <= 0 or moved_bytes < self._limits.min_bytes_per_s * elapsed_s:
            return True
        self._window_s = now_s
        self._unsent = unsent_bytes
        self.moved_bytes = 0
        return False
