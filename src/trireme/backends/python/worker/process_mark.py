"""The mark of a worker, which all that it starts inherits and no daemon loses: so it is found again, and ended, when
the worker is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

VARIABLE: Final = "TRIREME_PROCESS_MARK"
"""Where a worker finds its mark; it is gone when the model runs."""
GRACE_S: Final = 0.5
"""Between SIGTERM and SIGKILL: a helper of `multiprocessing` removes what its parent left in shared memory."""
LAST_ROUND_S: Final = 2.0
"""Then it is given up: what the kernel does not end, nobody can."""
_PAUSE_S: Final = 0.01


def take_mark() -> None:
    """Puts the mark of the environment on this process: a limit of realtime processes, which are none of ours, so high
    that it limits nothing. Children inherit it, new sessions and programs keep it, and anybody can read it. Where there
    is no such limit, the process leads a group of its own."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        resource.setrlimit(resource.RLIMIT_RTTIME, (int(text), hard))
    except (ImportError, AttributeError, OSError, ValueError):
        if not os.isatty(0):  # or a debugger could not read the terminal
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)


def end_marked(marks: range) -> None:
    """Ends all processes with one of these marks and returns when they are gone, within moments. Blocks; on any
    thread."""
    began = time.monotonic()
    told: set[int] = set()
    while found := list(_marked(marks)):
        waited_s = time.monotonic() - began
        if waited_s > LAST_ROUND_S:
            return
        for pid in found:
            if waited_s > GRACE_S:
                _send(pid, signal.SIGKILL)
            elif pid not in told:
                _send(pid, signal.SIGTERM)
        told.update(found)
        time.sleep(_PAUSE_S)


def _marked(marks: range) -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:  # not Linux
        return
    for name in names:
        if name.isdigit() and _mark_of(name) in marks and not _is_over(int(name)):
            yield int(name)


def _mark_of(pid: str) -> int:
    """0 where it cannot be told."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            _, _, line = file.read().partition(b"Max realtime timeout")
    except OSError:
        return 0
    soft = line.split(None, 1)[:1]
    return int(soft[0]) if soft and soft[0].isdigit() else 0


def _is_over(pid: int) -> bool:
    """Whether it has ended and only its parent's question for it is missing; ours is asked here."""
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split(None, 1)[0] in (b"Z", b"X")
    except OSError:
        return True


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
