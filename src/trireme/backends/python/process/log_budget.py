"""How much of what a model writes goes into the log: so many lines and bytes a second, and a count of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trireme.core.clock import Clock, monotonic_ns

LINES_PER_S = 1000
BYTES_PER_LINE = 512
"""The budget in bytes is that of the lines times this: one long line counts as several."""
BURST_S = 2
"""What was not used of so many seconds may come at once."""
REPORT_DELAY_S = 1.0


class LogBudget:
    """Of one worker. `report(count)` is told, at most once a second, how many lines were dropped since then."""

    def __init__(self, report: Callable[[int], None], clock: Clock = monotonic_ns) -> None:
        self._report = report
        self._clock = clock
        self._lines: float = LINES_PER_S * BURST_S
        self._bytes: float = self._lines * BYTES_PER_LINE
        self._filled_ns = clock()
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_dropped(self) -> bool:
        """Whether lines were dropped that nobody was told of yet."""
        return self._dropped > 0

    def lines_left(self) -> int:
        """How many lines may be logged now."""
        now_ns = self._clock()
        lines = (now_ns - self._filled_ns) / 1e9 * LINES_PER_S
        self._filled_ns = now_ns
        most = LINES_PER_S * BURST_S
        self._lines = min(most, self._lines + lines)
        self._bytes = min(most * BYTES_PER_LINE, self._bytes + lines * BYTES_PER_LINE)
        return int(self._lines) if self._bytes > 0 else 0

    def take(self, size_bytes: int) -> bool:
        """Whether one more line of this size may be logged; counts it as dropped where not."""
        if self.lines_left() < 1:
            self.drop(1)
            return False
        self._lines -= 1
        self._bytes -= size_bytes
        return True

    def drop(self, count: int) -> None:
        """Counts lines that were not logged."""
        if count and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_DELAY_S, self._tell)
        self._dropped += count

    def close(self) -> None:
        """Tells of what was dropped last."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        count, self._dropped = self._dropped, 0
        if count:
            self._report(count)


def dropped_text(count: int) -> str:
    """The line in the log in place of those that are not there."""
    lines = "line of this model's output was" if count == 1 else "lines of this model's output were"
    most = f"{LINES_PER_S} lines and {LINES_PER_S * BYTES_PER_LINE} bytes"
    return f"{count} {lines} dropped: the log takes {most} a second from one worker"
