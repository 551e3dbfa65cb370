"""The access log: one line per request, written by a thread: neither a slow nor a full disk stops the server."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trireme.access.log_lines import FORMATS
from trireme.access.visit import VisitRecord
from trireme.core.errors import InvalidArgumentError
from trireme.observe.prometheus import PageWriter

log = logging.getLogger(__name__)

STANDARD_OUTPUT: Final = "-"
MAX_WAITING: Final = 65_536
"""Records that may wait for the disk; those beyond are dropped and counted."""
_BATCH: Final = 1024
_PAUSE_S: Final = 0.2
_CLOSE_S: Final = 2.0


class AccessLog:
    """Implements `VisitLog` and `MetricsSource`. `record` is for the event loop's thread and never waits."""

    def __init__(self, place: str, line_format: str = "json", *, max_waiting: int = MAX_WAITING) -> None:
        """Raises ServingError where the file cannot be opened."""
        self._format = FORMATS[line_format]
        self._sink: LineSink = _StandardOutput() if place == STANDARD_OUTPUT else LogFile(Path(place))
        self._place = place
        self._waiting: deque[VisitRecord] = deque()
        self._max_waiting = max_waiting
        self._dropped = 0  # for want of a place to wait: counted by the loop's thread
        self._lost = 0  # for want of a disk: counted by the writing thread
        self._written = 0
        self._is_failing = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    def record(self, record: VisitRecord) -> None:
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(record)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Writes what waits, as far as the disk lets it within two seconds."""
        self._ends.set()
        self._thread.join(_CLOSE_S)

    @property
    def dropped_count(self) -> int:
        """Lines that will never be in the file."""
        return self._dropped + self._lost

    def write(self, writer: PageWriter) -> None:
        """Adds its metrics to a page."""
        writer.family("trireme_access_log_lines_total", "counter", "Lines written to the access log")
        writer.sample("", self._written)
        writer.family("trireme_access_log_dropped_total", "counter", "Lines that the disk was too slow or too full for")
        writer.sample("", self.dropped_count)

    # --- on the thread

    def _run(self) -> None:
        while not self._ends.wait(_PAUSE_S):
            self._drain()
        self._drain()
        self._sink.close()

    def _drain(self) -> None:
        waiting = self._waiting
        while waiting:
            batch = [waiting.popleft() for _ in range(min(_BATCH, len(waiting)))]
            try:
                lines = b"".join([self._format(record) for record in batch])
                self._sink.write(lines)
            except Exception as error:  # a thread that ends would end the log
                self._lost += len(batch)
                self._tell_failure(error)
            else:
                self._written += len(batch)
                self._tell_recovery()

    def _tell_failure(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            reason = error.strerror if isinstance(error, OSError) else error
            log.error("the access log '%s' cannot be written: %s; lines are dropped until it can", self._place, reason)

    def _tell_recovery(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.warning("the access log '%s' is written again; %d lines are missing", self._place, self.dropped_count)


class LineSink:
    """Where lines go; used by the writing thread alone."""

    def write(self, lines: bytes) -> None:
        """Takes whole lines; raises OSError."""
        raise OSError("closed")

    def close(self) -> None:
        """Nothing more comes."""


class _StandardOutput(LineSink):
    def write(self, lines: bytes) -> None:
        while lines:  # not by way of sys.stdout, whose lock the event loop's thread would have to wait for
            lines = lines[os.write(1, lines) :]


class LogFile(LineSink):
    """A file that may be moved or removed by a program that rotates logs: it is opened anew under its name."""

    def __init__(self, path: Path, look_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._look_s = look_s
        self._clock = clock
        self._descriptor = -1
        self._needs_line_end = False
        try:
            self._open()
        except OSError as error:
            raise InvalidArgumentError(
                f"the access log '{path}' cannot be opened: {error.strerror}; name a file in a folder that the server "
                f"may write to, or {STANDARD_OUTPUT} for standard output"
            ) from None

    def write(self, lines: bytes) -> None:
        if self._clock() - self._looked_s > self._look_s and self._is_moved():
            self.close()
        if self._descriptor < 0:
            self._open()
        if self._needs_line_end:  # a full disk has cut a line in two
            lines = b"\n" + lines
        while lines:
            written = os.write(self._descriptor, lines)
            self._needs_line_end = lines[written - 1 : written] != b"\n"
            lines = lines[written:]

    def close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._looked_s = self._clock()
        self._needs_line_end = False

    def _is_moved(self) -> bool:
        self._looked_s = self._clock()
        ours = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path)
        except OSError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)
