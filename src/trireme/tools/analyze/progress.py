"""How far the analysis is: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from trireme.tools.analyze.options import OutputOptions
from trireme.tools.perf.load.process import LoadState

_LIVE_S = 0.25


class Progress:
    """Writes to stderr; results are for stdout."""

    def __init__(self, options: OutputOptions) -> None:
        is_terminal = sys.stderr.isatty()
        self._is_quiet = options.verbosity < 0
        self._is_live = is_terminal if options.shows_progress is None else options.shows_progress
        self._is_live = self._is_live and not self._is_quiet
        self._began = time.monotonic()
        self._title = ""
        self._shown_s = 0.0
        self._width = 0

    def tell(self, text: str) -> None:
        """A line that stays."""
        if not self._is_quiet:
            self.clear()
            passed = time.monotonic() - self._began
            print(f"[{int(passed) // 60:3d}:{int(passed) % 60:02d}] {text}", file=sys.stderr, flush=True)

    def begin(self, title: str) -> None:
        """Something that takes a while."""
        self._title = title

    def show_state(self, state: LoadState) -> None:
        """How the load stands now."""
        now = time.monotonic()
        if not self._is_live or now - self._shown_s < _LIVE_S:
            return
        self._shown_s = now
        text = f"  {self._title}: {state.total} requests answered, {state.outstanding} under way"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
