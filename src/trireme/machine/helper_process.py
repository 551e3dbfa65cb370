"""A program of ours in a process of its own, asked over its pipes, with a time limit for each answer: for work that may
crash, take any memory or never end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TypeVar

T = TypeVar("T")


class HelperProcess:
    """Asked by one thread at a time; may be killed from any."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """`arguments` are of the interpreter; None: this process's environment. Raises OSError."""
        self.was_late = False
        """Whether it was killed for taking too long."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl+C reaches all of a terminal, and who asks decides
        )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """As `subprocess` has it; None while it lives."""
        return self._process.poll()

    def ask(
        self, question: Sequence[bytes | bytearray | memoryview], read: Callable[[IO[bytes]], T], limit_s: float
    ) -> T:
        """What `read` makes of the answer; raises OSError or EOFError where the process ends first, or is late."""
        assert self._process.stdout is not None
        watch = threading.Timer(limit_s, self._kill_late)
        watch.daemon = True
        watch.start()
        try:
            self.tell(question)
            return read(self._process.stdout)
        finally:
            watch.cancel()

    def tell(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Sends without waiting for an answer; raises OSError, or ValueError after the end."""
        assert self._process.stdin is not None
        for part in parts:
            self._process.stdin.write(part)
        self._process.stdin.flush()

    def tell_within(self, limit_s: float, message: bytes) -> None:
        """The same, also to one that may have stopped to read: it is killed where it has not taken all by then."""
        assert self._process.stdin is not None
        pipe, left, end = self._process.stdin.fileno(), memoryview(message), time.monotonic() + limit_s
        room = select.poll()
        room.register(pipe, select.POLLOUT)
        while left:
            if not room.poll(max(0.0, end - time.monotonic()) * 1000):
                self._kill_late()
                raise TimeoutError(f"it has not read what it was told within {limit_s:g} s")
            left = left[os.write(pipe, left[: select.PIPE_BUF]) :]

    def lines(self) -> Iterator[bytes]:
        """What comes without being asked for, until the end; for a thread beside the one that tells."""
        assert self._process.stdout is not None
        try:
            yield from self._process.stdout
        except ValueError:
            return  # the pipe was closed here

    def kill(self) -> None:
        """Ends it, also at work."""
        self._process.kill()

    def end(self, grace_s: float = 0.0) -> None:
        """Takes it from the system, its pipes closed. One that is about to end by itself may do so within the grace:
        its own status tells more."""
        if grace_s and self._process.poll() is None:
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                pass
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass  # what was not written yet never will be
        self._process.wait()

    def _kill_late(self) -> None:
        self.was_late = True
        self._process.kill()
