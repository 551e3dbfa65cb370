"""Fails a run of the tests that leaves processes behind, names them and ends them.

Every process of a run has its mark among the variables that it was started with, whoever its parent is by now, unless
it was started with none: a worker, an orphan, what a server has forked. A run inside another one has both marks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TEST_RUN"
END_S = 20.0
"""For so long what ends with a killed server may take; a run that leaves nothing waits for nothing."""
LEFT = 6
"""The exit code, which pytest gives no meaning to."""
_PYTHONS_OWN = b"multiprocessing.resource_tracker"


class LeftProcesses:
    """The plugin: marks what is started from now on, and looks for it when the session has ended."""

    def __init__(self, spared: Collection[int], end_s: float = END_S) -> None:
        self._pid = os.getpid()
        self._mark = f"<{self._pid}>"
        self._spared = spared
        self._end_s = end_s
        self._left: list[str] = []
        os.environ[VARIABLE] = os.environ.get(VARIABLE, "") + self._mark

    @pytest.hookimpl(trylast=True)  # behind the end of what has the scope of the session
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if os.getpid() != self._pid:  # one of the forked processes, which start for all
            return
        deadline = time.monotonic() + self._end_s
        while (pids := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in pids:
            self._left.append(f"{pid} {_words(pid).replace(bytes(1), b' ').decode(errors='replace').strip()}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._left:
            session.exitstatus = LEFT

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._left:
            terminalreporter.section("the tests have left processes behind, which are ended now")
            for line in self._left:
                terminalreporter.write_line(line)

    def _alive(self) -> list[int]:
        mark, found = f"{VARIABLE}=".encode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in self._spared:
                continue
            with suppress(OSError):  # gone meanwhile, or somebody else's
                variables = (entry / "environ").read_bytes().split(b"\0")
                is_ours = any(v.startswith(mark) and self._mark.encode() in v for v in variables)
                if is_ours and _PYTHONS_OWN not in _words(int(entry.name)):
                    found.append(int(entry.name))
        return found


def watch(config: pytest.Config, spared: Collection[int]) -> None:
    """Registers the plugin where the system tells of processes; `spared` may still grow."""
    if sys.platform == "linux":
        config.pluginmanager.register(LeftProcesses(spared))


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
