"""What the system tells of other processes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_THREADS = Path("/proc/self/task")
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT
"""Without a wait, and without taking it from who waits for it."""


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped the process (SIGSTOP); false where it is gone, or nobody tells."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return facts.rpartition(") ")[2].startswith("T")  # behind the name, which may hold anything


def ended_children() -> set[int]:
    """The children of this process that have ended and that nobody has waited for: all of them where the system lists
    children, else one."""
    try:
        first = os.waitid(os.P_ALL, 0, _LOOK)
    except ChildProcessError:
        return set()
    if first is None:
        return set()
    return {first.si_pid} | {pid for pid in _children() if _has_ended(pid)}


def _children() -> set[int]:
    """Of all threads: each has its own, and one of them those that were adopted."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in _THREADS.iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or the kernel lists no children
                found.update(map(int, (thread / "children").read_text().split()))
    return found


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, _LOOK) is not None
    except ChildProcessError:  # somebody has waited for it meanwhile
        return False
