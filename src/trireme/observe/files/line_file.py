"""A file of lines that outlives a full disk and a program that moves it away."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # for a pipe that nobody reads


class LineFile:
    """Opened anew under its name where it was moved or removed; used by one thread at a time."""

    def __init__(
        self, path: Path, mode: int = 0o640, look_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises OSError where the file cannot be opened."""
        self._path = path
        self._mode = mode
        self._look_s = look_s
        self._clock = clock
        self._descriptor = -1
        self._needs_line_end = False
        self._open()

    def write(self, lines: bytes) -> None:
        """Takes whole lines; raises OSError where not all of them could be written."""
        is_open = self._descriptor >= 0
        if is_open and self._clock() - self._looked_s > self._look_s and self._is_moved():
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
        """Nothing more comes."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = os.open(self._path, _FLAGS, self._mode)
        self._looked_s = self._clock()
        self._needs_line_end = False

    def _is_moved(self) -> bool:
        self._looked_s = self._clock()
        try:
            ours = os.fstat(self._descriptor)
            there = os.stat(self._path)
        except OSError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)
