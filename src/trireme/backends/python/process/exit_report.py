"""Why a worker process ended, in words: signal or exit code, lack of memory, and the last it printed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

EXITED = "exited"
KILLED = "killed"
OUT_OF_MEMORY = "out_of_memory"
MISBEHAVED = "misbehaved"
"""It lived, but what it sent was no use, and the server killed it."""
NOT_STARTED = "not_started"
"""A new process, or the model in it, did not come up."""

_OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


class ExitReport(NamedTuple):
    """What is known of the end of a worker process."""

    reason: str
    """One of the words above, which failures are counted by."""
    text: str
    """The whole of it for people."""


def oom_kills(counters: Sequence[Path] = _OOM_COUNTERS) -> int | None:
    """How many processes of this container the kernel killed for lack of memory so far; None where unknown."""
    for path in counters:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return None


def cause_of(return_code: int, oom_kills_before: int | None, oom_kills_now: int | None) -> tuple[str, str]:
    """The word for how the process ended, and a clause: `was killed by signal 11 (SIGSEGV)`."""
    if return_code >= 0:
        return EXITED, f"exited with code {return_code}"
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = "unknown"
    clause = f"was killed by signal {-return_code} ({name})"
    if return_code != -signal.SIGKILL:
        return KILLED, clause
    if oom_kills_before is not None and oom_kills_now is not None and oom_kills_now > oom_kills_before:
        return OUT_OF_MEMORY, f"{clause}: out of memory, the kernel's count of such kills in this container rose"
    return KILLED, f"{clause}, possibly out of memory"


def describe_exit(pid: int, cause: str, tail: Sequence[str]) -> str:
    """The whole report: the cause, then the last lines of output, which hold a Python stack where one was printed."""
    text = f"The worker process (pid {pid}) {cause}."
    if tail:
        text += " Its last output:\n" + "\n".join(f"  {line}" for line in tail)
    return text
