"""How far something has come: a bar on a terminal, a line now and then where nobody watches."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from trireme.tools.deploy.sizes import size_text

_BAR_WIDTH = 24
_TERMINAL_INTERVAL_S = 0.25
_LINE_INTERVAL_S = 10.0


class Progress:
    """Tells until it is stopped. It has a thread of its own, because what it tells of keeps the caller busy."""

    def __init__(
        self,
        what: str,
        total_bytes: int,
        measure: Callable[[], int],
        stream: TextIO | None = None,
        line_interval_s: float = _LINE_INTERVAL_S,
    ) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._measure = measure
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else line_interval_s
        self._began = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._write(self._line() if self._is_terminal else f"{self._what}: {size_text(self._total_bytes)}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(is_done=kind is None)

    def stop(self, *, is_done: bool) -> None:
        """Takes the bar away, and says how long it took; may be called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
        word = "done" if is_done else "stopped"
        print(f"{self._what}: {word} after {time.monotonic() - self._began:.1f} s", file=self._stream, flush=True)

    def _tell(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._write(self._line())

    def _line(self) -> str:
        amount = self._measure()
        share = min(1.0, amount / self._total_bytes) if self._total_bytes else 1.0
        sizes = f"{size_text(amount)} of about {size_text(self._total_bytes)}, {time.monotonic() - self._began:.0f} s"
        if not self._is_terminal:
            return f"{self._what}: {share:.0%}, {sizes}"
        filled = round(share * _BAR_WIDTH)
        return f"{self._what} [{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {share:4.0%}, {sizes}"

    def _write(self, line: str) -> None:
        # The cursor goes back to the start of the line, so that the next line of a log takes the bar's place.
        self._stream.write(f"{line}\x1b[K\r" if self._is_terminal else line + "\n")
        self._stream.flush()


def folder_bytes(folder: Path) -> int:
    """What the files of a folder amount to, those that are still being written too; links are not followed."""
    total = 0
    try:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
    except OSError:  # one went away meanwhile
        return total
    return total


def children_bytes() -> int:
    """Memory of this process's children, where the workers are; 0 where it cannot be read."""
    total = 0
    try:
        for listing in Path("/proc/self/task").glob("*/children"):
            for child in listing.read_text().split():
                total += int(Path(f"/proc/{child}/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError, ValueError):  # a child ended, or this is not Linux
        return total
    return total
