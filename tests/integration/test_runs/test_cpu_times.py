"""What `pytest --cpu-times` counts for a file of tests, and what for none."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from cpu_times import Watch


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
