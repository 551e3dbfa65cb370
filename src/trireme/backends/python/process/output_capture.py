"""What a worker prints: read from its pipes, written to the log line by line, the last lines kept."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque

from trireme.backends.python.process.log_budget import LogBudget, dropped_text

KEPT_LINES = 20
MAX_LINE_BYTES = 16 * 1024
READ_BYTES = 64 * 1024
PARTIAL_DELAY_S = 1.0
"""A line without its end (a prompt, a progress bar) is logged after this time."""
_CRASH = "Fatal Python error"
_CRASH_LINES = 10
_MOST_CHARACTERS = 1000
"""Of a line that is told to clients."""
_MOST_OF_A_STACK = 2000
REST_S = 0.002
"""How long the pipes of a worker that writes more than the log takes are left alone between two reads: whatever it
writes, the event loop is not busy with it."""


class OutputCapture:
    """Owns the read ends of a worker's stdout and stderr."""

    def __init__(self, loop: asyncio.AbstractEventLoop, model_name: str, instance_name: str) -> None:
        self._loop = loop
        self._logger = logging.getLogger(f"trireme.model.{model_name}")
        self._model_name = model_name
        self._instance_name = instance_name
        belongs = instance_name == model_name or instance_name.startswith(f"{model_name}_")
        self._label = instance_name if belongs else f"{model_name} {instance_name}"
        self._pipes: dict[int, _Pipe] = {}
        self._budget = LogBudget(self._report_dropped)
        self._tail: deque[str] = deque(maxlen=KEPT_LINES)
        self._crash: list[str] = []
        """The first lines of what Python says of a crash: its reason, and the calls that it came from."""
        self._lines_since_crash = 0

    @property
    def last_lines(self) -> list[str]:
        """The last that was written; of a stack that is longer than that, the beginning as well."""
        lines = list(self._tail)
        if not self._crash or self._crash[0] in lines:
            return lines
        return [*self._crash, "...", *lines[_CRASH_LINES + 1 :]]

    def add(self, fd: int, stream: str, level: int) -> None:
        """Reads from this descriptor from now on and closes it in the end."""
        os.set_blocking(fd, False)
        self._pipes[fd] = _Pipe(stream, level)
        self._loop.add_reader(fd, self._on_readable, fd)

    def drain(self) -> None:
        """Reads what is there, and ends the lines that have no end."""
        for fd in list(self._pipes):
            for _ in range(KEPT_LINES):
                if not self._on_readable(fd):
                    break
        for pipe in self._pipes.values():
            self._flush(pipe)

    def close(self) -> None:
        """Reads what is there and closes the pipes."""
        self.drain()
        for fd in list(self._pipes):
            self._close(fd)
        self._budget.close()

    def _on_readable(self, fd: int) -> bool:
        try:
            data = os.read(fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        pipe = self._pipes[fd]
        if not data:
            self._flush(pipe)
            self._close(fd)
            return False
        self._take(pipe, pipe.partial + data)
        if self._budget.has_dropped and pipe.rest is None:
            self._loop.remove_reader(fd)
            pipe.rest = self._loop.call_later(REST_S, self._read_again, fd)
        if len(pipe.partial) > MAX_LINE_BYTES:
            self._flush(pipe)
        elif pipe.partial and pipe.timer is None:
            pipe.timer = self._loop.call_later(PARTIAL_DELAY_S, self._flush, pipe)
        return True

    def _take(self, pipe: _Pipe, data: bytes) -> None:
        """Writes the complete lines, as many as the log takes; of the others the last ones are kept. A line that is
        dropped costs next to nothing, or a model that writes newlines would keep the event loop busy."""
        whole, _, pipe.partial = data.rpartition(b"\n")
        count = data.count(b"\n")
        if not count:
            return
        left = self._budget.lines_left()
        if count <= max(left, KEPT_LINES):
            for line in whole.split(b"\n"):
                self._write(line, pipe)
            return
        lines = whole.split(b"\n", left)
        rest = lines.pop()
        for line in lines:
            self._write(line, pipe)
        if self._logger.isEnabledFor(pipe.level):
            self._budget.drop(count - left)
        for line in rest.rsplit(b"\n", KEPT_LINES)[-KEPT_LINES:]:
            self._keep(_text_of(line))

    def _read_again(self, fd: int) -> None:
        pipe = self._pipes[fd]
        pipe.rest = None
        self._loop.add_reader(fd, self._on_readable, fd)

    def _flush(self, pipe: _Pipe) -> None:
        if pipe.timer is not None:
            pipe.timer.cancel()
            pipe.timer = None
        line, pipe.partial = pipe.partial, b""
        if line:
            self._write(line, pipe)

    def _write(self, line: bytes, pipe: _Pipe) -> None:
        text = _text_of(line)
        self._keep(text)
        if self._logger.isEnabledFor(pipe.level) and self._budget.take(len(repr(text))):  # as it is escaped
            self._log(pipe.level, pipe.stream, text)

    def _keep(self, text: str) -> None:
        place = text.find(_CRASH)  # in a line that had no end, perhaps
        text = text[max(place, 0) :][:_MOST_CHARACTERS]
        self._tail.append(text)
        if place >= 0:
            self._crash, self._lines_since_crash = [text], 0
        elif self._crash:
            self._lines_since_crash += 1
            if self._lines_since_crash < _CRASH_LINES:
                self._crash.append(text)
            elif self._lines_since_crash > _MOST_OF_A_STACK:  # somebody else's, who wrote to the same pipe
                self._crash = []

    def _report_dropped(self, count: int) -> None:
        self._log(logging.WARNING, "stdout", dropped_text(count))

    def _log(self, level: int, stream: str, text: str) -> None:
        logger = self._logger
        extra = {"model": self._model_name, "instance": self._instance_name, "stream": stream}
        message = f"[{self._label}] {text}"
        logger.handle(logger.makeRecord(logger.name, level, stream, 0, message, (), None, None, extra, None))

    def _close(self, fd: int) -> None:
        pipe = self._pipes.pop(fd)
        for timer in (pipe.timer, pipe.rest):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(fd)
        os.close(fd)


class _Pipe:
    """The state of one stream."""

    __slots__ = ("level", "partial", "rest", "stream", "timer")

    def __init__(self, stream: str, level: int) -> None:
        self.stream = stream
        self.level = level
        self.partial = b""
        self.timer: asyncio.TimerHandle | None = None
        self.rest: asyncio.TimerHandle | None = None  # until when nothing is read


def _text_of(line: bytes) -> str:
    """A progress bar overwrites its line with carriage returns: what counts is what would be visible."""
    return line.rstrip(b"\r").rpartition(b"\r")[2][:MAX_LINE_BYTES].decode("utf-8", "replace")
