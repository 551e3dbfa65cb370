"""What one HTTP/2 connection may cost: windows, sizes, and budgets against floods of cheap frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trireme.core.clock import Clock
from trireme.protocol.http2.wire import ENHANCE_YOUR_CALM, ConnectionFault

_BYTES_PER_WINDOW_UPDATE: Final = 1024.0
_WINDOW_UPDATES_PER_MESSAGE: Final = 4.0
"""Clients in C++ and Python open a stream's window once or twice and the connection's once for each message."""


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Sizes are advertised to the peer; budgets are tokens that refill over time."""

    stream_window_bytes: int = 16 << 20
    """What a client may send on one stream ahead of our WINDOW_UPDATE."""
    connection_window_bytes: int = 32 << 20
    """The same for the connection as a whole."""
    max_frame_bytes: int = 1 << 20
    """The largest frame payload we take."""
    max_header_list_bytes: int = 64 << 10
    """The largest header list of one request, decoded or not."""
    max_concurrent_streams: int = 4096
    """Open requests on one connection; more are refused."""
    max_continuations: int = 64
    """CONTINUATION frames of one header block."""
    reset_budget: int = 8192
    """RST_STREAM frames at once: a client may cancel all it has open, twice."""
    resets_per_s: int = 500
    control_budget: int = 1000
    """PING, SETTINGS, PRIORITY, empty DATA and unknown frames at once."""
    controls_per_s: int = 200
    window_update_budget: int = 20_000
    """WINDOW_UPDATE frames at once; besides, each kilobyte that was sent allows one, and each message four."""
    window_updates_per_s: int = 5_000
    stall_s: float = 300.0
    """How long responses may wait for a client that grants no window at all."""


class Budget:
    """A bucket of tokens; a connection that empties it ends with ENHANCE_YOUR_CALM."""

    __slots__ = ("_capacity", "_clock", "_level", "_refill_per_ns", "_updated_ns", "_what")

    def __init__(self, what: str, capacity: int, refill_per_s: int, clock: Clock) -> None:
        self._what = what
        self._capacity = float(capacity)
        self._level = float(capacity)
        self._refill_per_ns = refill_per_s / 1e9
        self._clock = clock
        self._updated_ns = clock()

    def earn(self, tokens: float) -> None:
        """Puts tokens in, up to the capacity."""
        self._level = min(self._capacity, self._level + tokens)

    def spend(self, tokens: float = 1.0) -> None:
        """Takes one token, or several, or ends the connection."""
        if self._level < tokens:
            now = self._clock()
            refill = (now - self._updated_ns) * self._refill_per_ns
            self._level = min(self._capacity, self._level + refill)
            self._updated_ns = now
            if self._level < tokens:
                raise ConnectionFault(ENHANCE_YOUR_CALM, f"too many {self._what}")
        self._level -= tokens


class WindowUpdateBudget(Budget):
    """Whoever reads much, or many messages, may open windows often. Frames earn nothing: a peer that opens windows byte
    by byte gets as many of them as it likes."""

    __slots__ = ("_credited_bytes", "_credited_messages")

    def __init__(self, limits: Http2Limits, clock: Clock) -> None:
        super().__init__("window updates", limits.window_update_budget, limits.window_updates_per_s, clock)
        self._credited_bytes = 0
        self._credited_messages = 0

    def spend_one(self, sent_bytes: int, messages: int) -> None:
        """Takes a token after as many bytes and messages have been sent in all."""
        earned = (sent_bytes - self._credited_bytes) / _BYTES_PER_WINDOW_UPDATE
        self.earn(earned + (messages - self._credited_messages) * _WINDOW_UPDATES_PER_MESSAGE)
        self._credited_bytes = sent_bytes
        self._credited_messages = messages
        self.spend()
