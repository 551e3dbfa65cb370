"""The last lines of the log, for those who look at a running server."""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

_OF_MODELS = "trireme.model."
"""Begins the names of the loggers that models speak through."""
_MAX_LINES = 2000
_MAX_CHARS = 2000


class LogLine(NamedTuple):
    """One line as it was logged."""

    number: int
    """Counts all lines there ever were."""
    time_s: float
    level: str
    model: str
    """Who said it, where a model did; else empty."""
    text: str


class RecentLines(logging.Handler):
    """Keeps the last lines that the log's settings let through, cut where they are very long."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=_MAX_LINES)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Called on whatever thread logs, under the handler's lock."""
        try:
            text = record.getMessage()
            if record.exc_info:
                text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        except Exception:
            self.handleError(record)
            return
        model = record.name.removeprefix(_OF_MODELS) if record.name.startswith(_OF_MODELS) else ""
        self._count += 1
        self._lines.append(LogLine(self._count, record.created, record.levelname, model, text[:_MAX_CHARS]))

    def about(self, model: str, after: int = 0, most: int = 200) -> list[LogLine]:
        """The last lines that a model has said or that name it, all lines for ""; those behind the one numbered, all
        where that one is of a server before this one."""
        if after > self._count:
            after = 0
        quoted = (f"'{model}'", f"'{model}_")
        lines = [line for line in list(self._lines) if line.number > after]
        if model:
            lines = [line for line in lines if line.model == model or any(name in line.text for name in quoted)]
        return lines[-most:]
