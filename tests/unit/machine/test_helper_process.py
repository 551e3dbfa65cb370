"""Helpers that answer, that are late, and that end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from trireme.machine.helper_process import HelperProcess

ECHO = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n    sys.stdout.flush()\n"
SILENT = "import sys, time\nsys.stdin.readline()\ntime.sleep(60)\n"
GONE = "import sys\nsys.stdin.readline()\nsys.exit(3)\n"


@contextmanager
def helper(source: str) -> Iterator[HelperProcess]:
    process = HelperProcess("-c", source)
    try:
        yield process
    finally:
        process.end()
    assert process.exit_code is not None


def line_of(stream: IO[bytes]) -> bytes:
    line = stream.readline()
    if not line:
        raise EOFError
    return line


def test_questions_are_answered_one_after_another() -> None:
    with helper(ECHO) as process:
        assert process.ask([b"one ", memoryview(b"two\n")], line_of, 30) == b"one two\n"
        assert process.ask([b"three\n"], line_of, 30) == b"three\n"
        assert (process.exit_code, process.was_late) == (None, False)


def test_one_that_is_late_is_killed() -> None:
    with helper(SILENT) as process:
        with pytest.raises(EOFError):
            process.ask([b"go\n"], line_of, 0.3)
        process.end()
        assert (process.exit_code, process.was_late) == (-signal.SIGKILL, True)


def test_one_that_ends_by_itself_tells_how_within_the_grace() -> None:
    with helper(GONE) as process:
        with pytest.raises(EOFError):
            process.ask([b"go\n"], line_of, 30)
        process.end(grace_s=30)
        assert (process.exit_code, process.was_late) == (3, False)
        with pytest.raises((OSError, ValueError)):
            process.ask([b"again\n"], line_of, 30)


def test_one_that_is_killed_at_work_is_not_called_late() -> None:
    with helper(SILENT) as process:
        process.kill()
        process.end()
        assert (process.exit_code, process.was_late) == (-signal.SIGKILL, False)


def test_one_that_reads_no_more_is_killed() -> None:
    with helper(ECHO) as process:
        process.tell_within(30, b"x" * 300_000 + b"\n")  # which does not fit into the pipe
        assert process.ask([], line_of, 30) == b"x" * 300_000 + b"\n"
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError, match=r"has not read what it was told within 0\.3 s"):
            process.tell_within(0.3, b"x" * 300_000)
        process.end()
        assert (process.exit_code, process.was_late) == (-signal.SIGKILL, True)
        with pytest.raises(ValueError, match="closed"):
            process.tell_within(30, b"again\n")
