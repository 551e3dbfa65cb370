"""How far something has come: a bar on a terminal, a line now and then where nobody watches."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from trireme.tools.deploy.sizes import size_text

_BAR_WIDTH = 24
_USUAL_COLUMNS = 80
_ERASE = "\x1b[K"
"""Takes away what stands from the cursor to the end of the row."""
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
        self._make_record = logging.getLogRecordFactory()

    def __enter__(self) -> Self:
        if self._is_terminal:
            logging.setLogRecordFactory(self._record_below_no_bar)
        self._write(self._line() if self._is_terminal else f"{self._what}: {size_text(self._total_bytes)}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop("done")
        else:
            self.stop("failed" if issubclass(kind, Exception) else "interrupted")

    def stop(self, how: str) -> None:
        """Takes the bar away, and says how it ended and how long it took; may be called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        if self._is_terminal:
            logging.setLogRecordFactory(self._make_record)
            self._stream.write(f"\r{_ERASE}")
        print(f"{self._what}: {how} after {time.monotonic() - self._began:.1f} s", file=self._stream, flush=True)

    def _record_below_no_bar(self, *words: Any, **names: Any) -> logging.LogRecord:
        """Takes the bar away before a line of the log is made, which may be shorter and leave its end standing."""
        self._stream.write(_ERASE)
        return self._make_record(*words, **names)

    def _tell(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._write(self._line())

    def _line(self) -> str:
        amount = self._measure()
        share = min(1.0, amount / self._total_bytes) if self._total_bytes else 1.0
        sizes = f"{size_text(amount)} of about {size_text(self._total_bytes)}, {time.monotonic() - self._began:.0f} s"
        plain = f"{self._what}: {share:.0%}, {sizes}"
        if not self._is_terminal:
            return plain
        filled, columns = round(share * _BAR_WIDTH), self._columns()
        line = f"{self._what} [{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {share:4.0%}, {sizes}"
        return line if fitted(line, columns) == line else fitted(plain, columns)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_COLUMNS
        except (OSError, ValueError):  # a terminal that does not tell
            return _USUAL_COLUMNS

    def _write(self, line: str) -> None:
        # The cursor goes back to the start of the line, so that the next line of a log takes the bar's place.
        self._stream.write(f"{line}{_ERASE}\r" if self._is_terminal else line + "\n")
        self._stream.flush()


def fitted(line: str, columns: int) -> str:
    """As much of the line as a row of a terminal holds: a longer one would break, and its beginning stay. Letters that
    are twice as wide count twice, and the last column is left free."""
    room = columns - 1
    for index, letter in enumerate(line):
        room -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return line[:index]
    return line


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
