"""Where the processor time of a run goes: `pytest --cpu-times` lists the files of tests that took most of it.

Counted is what the test process used, and every process below it, as often as it is looked at: of a process that ends
between two looks the last tenth of a second is missing. The looks themselves count for nobody: the longer a busy
machine takes for a test, the more of them there are; nor does what a process that forks commands imports, once for
many files. Beside it stand the wall time, which says little on a machine that does much at once, the number of tests,
and how many servers and workers they have started.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_starter import STARTER

LOOK_S = 0.1
SHOWN = 60
_TICKS = os.sysconf("SC_CLK_TCK")
_PROPERTY = "cpu_times"
KINDS = ("tests", "servers", "workers", "others")
WALL, COUNT, STARTED = "wall", "count", ("servers started", "workers started")
COLUMNS = ("all", *KINDS, WALL, COUNT, *STARTED)


class CpuTimes:
    """The plugin: looks while tests run, passes what it saw with the report of each test's end, and sums it up."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._watch: Watch | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        report = yield
        if call.when == "teardown" and self._watch is not None:
            report.user_properties.append((_PROPERTY, self._watch.used()))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        if self._watch is None or self._watch.pid != os.getpid():
            self._watch = Watch()
            threading.Thread(target=self._watch.look_again, daemon=True, name="cpu-times").start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        sums = self._sums[report.nodeid.split("::")[0]]
        sums[WALL] += report.duration
        sums[COUNT] += report.when == "setup"
        for name, used in report.user_properties:
            if name == _PROPERTY:
                for kind, number in used.items():
                    sums[kind] += number
                    sums["all"] += number if kind in KINDS else 0

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("seconds of processor time")
        for line in lines_of(self._sums):
            terminalreporter.write_line(line)


def lines_of(sums: dict[str, dict[str, float]]) -> list[str]:
    """The table, with what takes most first."""
    files = sorted(sums.items(), key=lambda entry: -entry[1].get("all", 0.0))[:SHOWN]
    every = {column: sum(used.get(column, 0.0) for used in sums.values()) for column in COLUMNS}
    lines = ["".join(f"{column.split()[-1]:>10}" for column in COLUMNS) + "  (servers, workers)"]
    for file, used in [("every file", every), *files]:
        seconds = "".join(f"{used.get(column, 0.0):10.1f}" for column in COLUMNS[:-3])
        counts = "".join(f"{used.get(column, 0.0):10.0f}" for column in COLUMNS[-3:])
        lines.append(f"{seconds}{counts}  {file}")
    return lines


class Watch:
    """What this process and those below it have used since it was asked the last time."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._own_s = time.process_time()
        self._looking_s = 0.0
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, int], int] = {}
        self._kinds: dict[tuple[int, int], str] = {}
        self._used: dict[str, float] = defaultdict(float)

    def used(self) -> dict[str, float]:
        with self._lock:
            self._look()
            used, self._used = dict(self._used), defaultdict(float)
            own_s = time.process_time() - self._looking_s
        used["tests"] = own_s - self._own_s
        self._own_s = own_s
        return used

    def look_again(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                self._look()

    def _look(self) -> None:
        began_s = time.thread_time()
        self._count()
        self._looking_s += time.thread_time() - began_s

    def _count(self) -> None:
        parents: dict[int, list[tuple[int, int, int, str]]] = defaultdict(list)
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    text = Path(entry.path, "stat").read_text()
                except OSError:  # gone meanwhile
                    continue
                name, _, rest = text.partition("(")[2].rpartition(")")
                fields = rest.split()
                ticks = int(fields[11]) + int(fields[12])
                parents[int(fields[1])].append((int(entry.name), int(fields[19]), ticks, name))
        below = parents[self.pid]
        while below:
            pid, start, ticks, name = below.pop()
            below += parents[pid]
            if name == STARTER:
                continue
            kind = _kind(name)
            if kind != self._kinds.get((pid, start)):  # a process has its name a moment after its fork
                self._kinds[pid, start] = kind
                self._used[f"{kind} started"] += 1
            self._used[kind] += (ticks - self._seen.get((pid, start), 0)) / _TICKS
            self._seen[pid, start] = ticks


def _kind(name: str) -> str:
    if name == "trireme-worker":
        return "workers"
    return "servers" if name == "tritonserver" else "others"
