"""Why a worker process ended, in words: signal or exit code, lack of memory, and the last it printed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

_OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def oom_kills(counters: Sequence[Path] = _OOM_COUNTERS) -> int | None:
    """How many processes of this container the kernel killed for lack of memory so far; None where unknown."""
    for path in counters:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return None


def cause_of(return_code: int | None, oom_kills_before: int | None, oom_kills_now: int | None) -> str:
    """A clause that says how the process ended: `was killed by signal 11 (SIGSEGV)`."""
    if return_code is None:
        return "stopped answering and was killed"
    if return_code >= 0:
        return f"exited with code {return_code}"
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = "unknown"
    clause = f"was killed by signal {-return_code} ({name})"
    if return_code != -signal.SIGKILL:
        return clause
    if oom_kills_before is not None and oom_kills_now is not None and oom_kills_now > oom_kills_before:
        return f"{clause}: out of memory, the kernel's count of such kills in this container rose"
    return f"{clause}, possibly out of memory"


def obituary(pid: int, cause: str, tail: Sequence[str]) -> str:
    """The whole report: the cause, then the last lines of output, which hold a Python stack where one was printed."""
    text = f"The worker process (pid {pid}) {cause}."
    if tail:
        text += " Its last output:\n" + "\n".join(f"  {line}" for line in tail)
    return text
