"""How early to wake for what is due: a machine wakes a sleeper late, which would be seen in the latencies."""

from __future__ import annotations

from typing import Final

_MOST_NS: Final = 300_000
_SHARE: Final = 10
"""No more than this part of the time between two requests is spent awake."""
_FIRST_NS: Final = 100_000
_UP_NS: Final = 18_000
_DOWN_NS: Final = 2_000
"""Nine to one: the margin settles where nine of ten wake-ups are in time."""


class BusyPolling:
    """A margin before each due time in which the loop looks at its sockets instead of sleeping."""

    __slots__ = ("_margin_ns", "_wanted_ns")

    def __init__(self) -> None:
        self._margin_ns = _FIRST_NS
        self._wanted_ns: int | None = None

    def sleep_ns(self, now_ns: int, due_ns: int, gap_ns: int) -> int:
        """How long to sleep where `gap_ns` lie between two requests; 0 in the margin."""
        wake_ns = due_ns - min(self._margin_ns, gap_ns // _SHARE)
        if wake_ns <= now_ns:
            self._wanted_ns = None
            return 0
        self._wanted_ns = wake_ns
        return wake_ns - now_ns

    def woke(self, now_ns: int) -> None:
        """Learns from how late it was; something that came before the time tells nothing."""
        if self._wanted_ns is None or now_ns < self._wanted_ns:
            return
        is_in_time = now_ns - self._wanted_ns <= self._margin_ns
        self._wanted_ns = None
        self._margin_ns += -_DOWN_NS if is_in_time else _UP_NS
        self._margin_ns = min(_MOST_NS, max(0, self._margin_ns))
