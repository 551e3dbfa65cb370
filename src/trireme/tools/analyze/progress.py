"""How far the analysis is: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
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
            print(self._line(text), file=sys.stderr, flush=True)

    def tell_at_once(self, text: str) -> None:
        """The same in the handler of a signal, which may have come in the middle of another line."""
        if not self._is_quiet:
            start = "\n" if self._width else ""
            os.write(2, f"{start}{self._line(text)}\n".encode())

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

    def _line(self, text: str) -> str:
        passed = int(time.monotonic() - self._began)
        return f"[{passed // 60:3d}:{passed % 60:02d}] {text}"

    def clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
