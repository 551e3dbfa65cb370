"""The access log: one line per request, written by a thread: neither a slow nor a full disk stops the server."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from pathlib import Path
from typing import Final, Protocol

from trireme.access.log_lines import FORMATS
from trireme.access.tracked_request import AccessRecord
from trireme.core.errors import InvalidArgumentError
from trireme.observe.files.line_file import LineFile
from trireme.observe.prometheus import PageWriter

log = logging.getLogger(__name__)

STANDARD_OUTPUT: Final = "-"
MAX_WAITING: Final = 65_536
"""Records that may wait for the disk; those beyond are dropped and counted."""
_BATCH: Final = 1024
_PAUSE_S: Final = 0.2
_CLOSE_S: Final = 2.0


class AccessLog:
    """Implements `AccessRecorder` and `MetricsSource`. `record` is for the event loop's thread and never waits."""

    def __init__(self, place: str, line_format: str = "json", *, max_waiting: int = MAX_WAITING) -> None:
        """Raises ServingError where the file cannot be opened."""
        self._format = FORMATS[line_format]
        self._sink: LineSink = _StandardOutput() if place == STANDARD_OUTPUT else _open_file(place)
        self._place = place
        self._waiting: deque[AccessRecord] = deque()
        self._max_waiting = max_waiting
        self._dropped = 0  # for want of a place to wait: counted by the loop's thread
        self._lost = 0  # for want of a disk: counted by the writing thread
        self._written = 0
        self._is_failing = False
        self._is_behind = False  # lines are dropped for want of a place to wait
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    def record(self, record: AccessRecord) -> None:
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(record)
        else:
            self._dropped += 1
            if not self._is_behind:
                self._is_behind = True
                log.error("the access log '%s' is not written fast enough; lines are dropped until it is", self._place)

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
        if self._is_failing or (self._is_behind and not self._waiting):
            self._is_failing = self._is_behind = False
            log.warning("the access log '%s' is written again; %d lines are missing", self._place, self.dropped_count)


class LineSink(Protocol):
    """Where lines go; used by the writing thread alone."""

    def write(self, lines: bytes) -> None:
        """Takes whole lines; raises OSError."""

    def close(self) -> None:
        """Nothing more comes."""


class _StandardOutput:
    def write(self, lines: bytes) -> None:
        while lines:  # not by way of sys.stdout, whose lock the event loop's thread would have to wait for
            lines = lines[os.write(1, lines) :]

    def close(self) -> None:
        """It is not ours."""


def _open_file(place: str) -> LineFile:
    try:
        return LineFile(Path(place))
    except OSError as error:
        raise InvalidArgumentError(
            f"the access log '{place}' cannot be opened: {error.strerror}; name a file in a folder that the server "
            f"may write to, or {STANDARD_OUTPUT} for standard output"
        ) from None
