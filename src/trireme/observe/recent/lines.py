"""The last lines of the log, for those who look at a running server."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from contextlib import nullcontext
from typing import NamedTuple

_OF_MODELS = "trireme.model."
"""Begins the names of the loggers that models speak through."""
_MAX_LINES = 2000
_MAX_LINES_OF_MODEL = 200
_MAX_MODELS = 50
"""Those that have spoken last; a talkative one pushes out neither the server's lines nor those of others."""
_MAX_CHARS = 2000


class LogLine(NamedTuple):
    """One line as it was logged."""

    number: int
    """Grows from line to line, and from one server to the next."""
    time_s: float
    level: str
    model: str
    """Who said it, where a model did; else empty."""
    text: str


class RecentLines(logging.Handler):
    """Keeps the last lines that the log's settings let through, cut where they are very long."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=_MAX_LINES)  # of the server itself
        self._of_models: dict[str, deque[LogLine]] = {}
        self._count = int(time.time() * 1000)  # so that the lines of the next server have greater numbers

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
        self._ring(model).append(LogLine(self._count, record.created, record.levelname, model, text[:_MAX_CHARS]))

    def _ring(self, model: str) -> deque[LogLine]:
        if not model:
            return self._lines
        ring = self._of_models.pop(model, None) or deque(maxlen=_MAX_LINES_OF_MODEL)
        self._of_models[model] = ring  # the last of them now
        if len(self._of_models) > _MAX_MODELS:
            del self._of_models[next(iter(self._of_models))]
        return ring

    def about(self, model: str, after: int = 0, most: int = 200) -> list[LogLine]:
        """The lines that a model has said or that name it or its instances, all lines for "": the last ones, or the
        first ones behind the one numbered."""
        if after > self._count:
            after = 0
        with self.lock or nullcontext():
            rings = [self._lines, *self._of_models.values()]
            lines = [line for ring in rings for line in ring if line.number > after]
        if model:
            name = re.escape(model)
            named = re.compile(rf"'{name}(?:_\d+){{0,2}}'|(?:^|\s){name}:\d+(?:\s|$)")
            lines = [line for line in lines if line.model == model or (model in line.text and named.search(line.text))]
        lines.sort(key=_number)
        return lines[:most] if after else lines[-most:]


def _number(line: LogLine) -> int:
    return line.number
