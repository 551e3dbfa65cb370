"""How far the analysis is: a live line on a terminal, elsewhere plain lines, one every ten seconds at least."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from trireme.tools.analyze.options import OutputOptions
from trireme.tools.perf.load.process import LoadState

_LIVE_S = 0.25
_SILENT_S = 10.0


class Progress:
    """Writes to stderr; results are for stdout."""

    def __init__(self, options: OutputOptions, silent_s: float = _SILENT_S) -> None:
        is_terminal = sys.stderr.isatty()
        self._is_quiet = options.verbosity < 0
        self._is_live = is_terminal if options.shows_progress is None else options.shows_progress
        self._is_live = self._is_live and not self._is_quiet
        self._repeats = not (self._is_quiet or self._is_live or options.shows_progress is False)
        self._silent_s = silent_s
        self._began = self._told_s = self._title_s = time.monotonic()
        self._title = self._state = ""
        self._shown_s = 0.0
        self._width = 0

    def tell(self, text: str) -> None:
        """A line that stays."""
        self._told_s = time.monotonic()
        if not self._is_quiet:
            self.clear()
            print(self._line(text), file=sys.stderr, flush=True)

    def conclude(self, text: str) -> None:
        """What became of it, which is told where results alone are wanted as well."""
        self.clear()
        print(text if self._is_quiet else self._line(text), file=sys.stderr, flush=True)

    def tell_at_once(self, text: str) -> None:
        """The same in the handler of a signal, which may have come in the middle of another line, or in a thread."""
        self._told_s = time.monotonic()
        if not self._is_quiet:
            start = "\n" if self._width else ""
            os.write(2, f"{start}{self._line(text)}\n".encode())

    def begin(self, title: str) -> None:
        """Something that takes a while."""
        self._title, self._state, self._title_s = title, "", time.monotonic()

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Within it, where there is no live line, whatever takes long is told again and again."""
        is_over = threading.Event()
        if self._repeats:
            threading.Thread(target=self._repeat, args=[is_over], name="progress", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    def _repeat(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._silent_s / 10):
            now = time.monotonic()
            if self._title and now - self._told_s >= self._silent_s:
                self.tell_at_once(f"{self._title}: {now - self._title_s:.0f} s{self._state}")

    def show_state(self, state: LoadState) -> None:
        """How the load stands now."""
        now = time.monotonic()
        if now - self._shown_s < _LIVE_S:
            return
        self._shown_s = now
        self._state = f", answered {state.total}, under way {state.outstanding}"
        if not self._is_live:
            return
        text = f"  {self._title}{self._state}"
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
