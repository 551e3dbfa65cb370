"""Where the processor time of a run goes: `pytest --cpu-times` lists the files of tests that took most of it.

Counted is what the test process used, and every process below it, as often as it is looked at: of a process that ends
between two looks the last tenth of a second is missing. The looks themselves count for nobody: the longer a busy
machine takes for a test, the more of them there are. Wall time says little on a machine that does much at once.
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

LOOK_S = 0.1
SHOWN = 60
_TICKS = os.sysconf("SC_CLK_TCK")
_PROPERTY = "cpu_times"
KINDS = ("tests", "servers", "workers", "others")


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
        for name, used in report.user_properties:
            if name == _PROPERTY:
                for kind, seconds in used.items():
                    self._sums[report.nodeid.split("::")[0]][kind] += seconds

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files = sorted(self._sums.items(), key=lambda entry: -sum(entry[1].values()))
        terminalreporter.section("seconds of processor time")
        terminalreporter.write_line("".join(f"{kind:>10}" for kind in ("all", *KINDS)))
        every = {kind: sum(used[kind] for _, used in files) for kind in KINDS}
        for file, used in [("every file", every), *files[:SHOWN]]:
            numbers = (sum(used.values()), *(used[kind] for kind in KINDS))
            terminalreporter.write_line("".join(f"{number:10.1f}" for number in numbers) + f"  {file}")


class Watch:
    """What this process and those below it have used since it was asked the last time."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._own_s = time.process_time()
        self._looking_s = 0.0
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, int], int] = {}
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
            self._used[_kind(name)] += (ticks - self._seen.get((pid, start), 0)) / _TICKS
            self._seen[pid, start] = ticks


def _kind(name: str) -> str:
    if name.startswith("trireme-"):
        return "workers"
    return "servers" if name == "tritonserver" else "others"
