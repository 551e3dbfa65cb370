"""The log in a file: a full disk is told once on standard error, and in the file how many lines it has cost."""

from __future__ import annotations

import contextlib
import logging
import sys
from pathlib import Path

from trireme.observe.files.line_file import LineFile


class LogFile(logging.Handler):
    """Writes lines as they come; those that the disk has no room for are dropped and counted."""

    def __init__(self, path: str) -> None:
        """Raises OSError where the file cannot be opened."""
        super().__init__()
        self._path = path
        self._file = LineFile(Path(path), mode=0o666)  # less what the umask takes
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record)
            if self._dropped:
                lines = f"{self.format(_told(logging.WARNING, self._missing()))}\n{lines}"
            self._file.write(lines.encode("utf-8", "backslashreplace") + b"\n")
            self._dropped = 0
        except OSError as error:
            if not self._dropped:
                self._tell_failure(error)
            self._dropped += 1
        except Exception:  # a line that cannot be formatted
            self.handleError(record)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _missing(self) -> str:
        count = "1 line is" if self._dropped == 1 else f"{self._dropped} lines are"
        return f"{count} missing here: the log could not be written"

    def _tell_failure(self, error: OSError) -> None:
        sentence = f"the log '{self._path}' cannot be written: {error.strerror}; lines are dropped until it can"
        with contextlib.suppress(OSError, ValueError):
            print(self.format(_told(logging.ERROR, sentence)), file=sys.stderr, flush=True)


def _told(level: int, sentence: str) -> logging.LogRecord:
    """A line of the log about itself."""
    return logging.LogRecord(__name__, level, __file__, 0, sentence, None, None)
