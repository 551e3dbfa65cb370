"""How the run stands while it runs: a few lines in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from trireme.observe.terminal.appearance import line_width
from trireme.tools.perf.load.process import LoadState
from trireme.tools.perf.measure.window import Summary
from trireme.tools.perf.options import ReportOptions
from trireme.tools.perf.report.numbers import six_digits

_BARS = " ▁▂▃▄▅▆▇█"
_KEPT_RATES = 40
_KEPT_WINDOWS = 3
_IN_PLACE_S, _ELSEWHERE_S = 0.2, 10.0
_UP, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[{}A", "\x1b[K", "\x1b[J"


class LiveView:
    """On stderr, so that what is printed can be read by programs; on a terminal it is gone before anything is."""

    def __init__(
        self,
        options: ReportOptions,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_on = options.shows_progress is not False
        self._is_in_place = self._stream.isatty() and (sys.stdout.isatty() or options.shows_progress is True)
        self._line_count = 0
        self._began_s = self._told_s = clock()
        self._title = ""
        self._windows: list[str] = []
        self._rates: deque[float] = deque(maxlen=_KEPT_RATES)
        self._last: tuple[float, LoadState] | None = None

    def begin(self, title: str) -> None:
        """A new level."""
        self._title, self._windows, self._last = title, [], None
        self._began_s = self._clock()
        self._rates.clear()

    def show_window(self, number: int, summary: Summary | None) -> None:
        """A window is over."""
        if summary is None:
            self._windows.append(f"window {number}: no request ended")
        else:
            latency = summary.stabilizing_ns // 1000
            self._windows.append(f"window {number}: {six_digits(summary.throughput)} infer/s, {latency} us")

    def show_state(self, state: LoadState) -> None:
        """The load as it stands now, where it is time to show it."""
        now_s = self._clock()
        if not self._is_on or now_s - self._told_s < (_IN_PLACE_S if self._is_in_place else _ELSEWHERE_S):
            return
        self._told_s = now_s
        rate, cpu_share = self._rate(now_s, state)
        if self._is_in_place:
            self._redraw(self._lines(now_s, state, rate, cpu_share))
        else:
            self._stream.write(self._log_line(now_s, state, rate) + "\n")
            self._stream.flush()

    def clear(self) -> None:
        """Takes the lines away."""
        if self._line_count:
            self._stream.write(f"{_UP.format(self._line_count)}\r{_REST_OF_SCREEN}")
            self._stream.flush()
            self._line_count = 0

    def _rate(self, now_s: float, state: LoadState) -> tuple[float | None, float]:
        """Answers per second since the last look, and the share of a core that the load took."""
        before, self._last = self._last, (now_s, state)
        if before is None or now_s <= before[0]:
            return None, 0.0
        seconds = now_s - before[0]
        rate = (state.total - before[1].total) / seconds
        self._rates.append(rate)
        return rate, (state.cpu_s - before[1].cpu_s) / seconds

    def _lines(self, now_s: float, state: LoadState, rate: float | None, cpu_share: float) -> list[str]:
        shown = "" if rate is None else f"{rate:9.0f} requests/s  {bars(self._rates)}"
        cost = f"this client takes {100 * cpu_share:.0f} % of a core"
        return [
            f"{self._title}, {now_s - self._began_s:.0f} s; Ctrl+C ends and prints what there is",
            f"  now {shown}",
            f"  {state.total} answered, {state.outstanding} under way, {cost}",
            *(f"  {window}" for window in self._windows[-_KEPT_WINDOWS:]),
        ]

    def _log_line(self, now_s: float, state: LoadState, rate: float | None) -> str:
        parts = [
            f"{self._title}, {now_s - self._began_s:.0f} s",
            "" if rate is None else f"{rate:.0f} requests/s",
            f"{state.total} answered, {state.outstanding} under way",
            self._windows[-1] if self._windows else "",
        ]
        return "; ".join(part for part in parts if part)

    def _redraw(self, lines: list[str]) -> None:
        width = line_width(self._stream) or 120
        up = _UP.format(self._line_count) + "\r" if self._line_count else "\r"
        text = "".join(f"{line[: width - 1]}{_REST_OF_LINE}\n" for line in lines)
        self._stream.write(f"{up}{text}{_REST_OF_SCREEN}")
        self._stream.flush()
        self._line_count = len(lines)


def bars(values: deque[float]) -> str:
    """The values as bars, the largest full."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return ""
    return "".join(_BARS[min(len(_BARS) - 1, round(value / largest * (len(_BARS) - 1)))] for value in values)
