"""What `pytest --cpu-times` counts for a file of tests, and what for none."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_starter import STARTER
from cpu_times import CpuTimes, Watch, lines_of
from forked_commands import Starter, fresh_interpreters
from running_server import RunningServer, write_model
from waiting import until

IDLE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@pytest.fixture
def watch() -> Watch:
    return Watch()  # which looks when it is asked


def test_time_of_the_test_itself_is_counted(watch: Watch) -> None:
    watch.used()
    began_s = time.process_time()
    while time.process_time() < began_s + 0.2:
        pass
    assert watch.used()["tests"] >= 0.19


def test_time_of_a_process_below_is_counted(watch: Watch) -> None:
    watch.used()
    program = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as below:
        assert below.stdout is not None
        below.stdout.readline()
        assert watch.used()["others"] >= 0.25
        below.communicate(b"\n")


def test_looking_counts_for_nobody(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def count() -> None:
        began_s = time.thread_time()
        while time.thread_time() < began_s + 0.2:
            pass

    watch.used()
    monkeypatch.setattr(watch, "_count", count)
    assert watch.used()["tests"] < 0.1


def test_servers_and_workers_are_counted_once(watch: Watch, tmp_path: Path) -> None:
    write_model(tmp_path, "one", IDLE)
    write_model(tmp_path, "two", IDLE)
    used: dict[str, float] = {}
    with fresh_interpreters(), RunningServer(tmp_path) as server:  # what is forked may be another process's
        server.wait_until_ready()
        for _ in range(2):
            for kind, number in watch.used().items():
                used[kind] = used.get(kind, 0.0) + number
    assert (used["servers started"], used["workers started"]) == (1, 2)


def test_what_the_starter_of_commands_imports_counts_for_nobody(watch: Watch) -> None:
    watch.used()
    starter = Starter()
    try:
        until(lambda: Path(f"/proc/{starter._process.pid}/comm").read_text() == f"{STARTER}\n")
        watch.used()
        assert starter._process.pid not in {pid for pid, _ in watch._seen}
    finally:
        starter.end()


def test_the_table_has_what_takes_most_first_and_tells_what_was_started() -> None:
    plugin = CpuTimes()
    for file, seconds in (("cheap.py", 1.0), ("dear.py", 5.0)):
        for when in ("setup", "call", "teardown"):
            report = pytest.TestReport(f"{file}::test_x", (file, None, "x"), {}, "passed", None, when, duration=2.0)  # type: ignore[arg-type]
            if when == "teardown":
                used = {"tests": seconds, "workers": 0.5, "workers started": 3.0}
                report.user_properties.append(("cpu_times", used))
            plugin.pytest_runtest_logreport(report)
    assert [" ".join(line.split()) for line in lines_of(plugin._sums)][1:] == [
        "7.0 6.0 0.0 1.0 0.0 12.0 2 0 6 every file",
        "5.5 5.0 0.0 0.5 0.0 6.0 1 0 3 dear.py",
        "1.5 1.0 0.0 0.5 0.0 6.0 1 0 3 cheap.py",
    ]
