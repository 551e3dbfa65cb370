"""The process that puts things back for one that cannot any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trireme.tools.analyze.server.death_watchdog import DeathWatchdog

DYING = """
import os, signal, sys, time
from pathlib import Path
from trireme.tools.analyze.server.death_watchdog import DeathWatchdog
with DeathWatchdog(lambda: Path(sys.argv[1]).write_text("back")):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_nothing_is_put_back_for_one_that_ends_well(tmp_path: Path) -> None:
    with DeathWatchdog(lambda: (tmp_path / "done").write_text("back")):
        pass
    assert not (tmp_path / "done").exists()


def test_a_killed_process_has_things_put_back(tmp_path: Path) -> None:
    path = tmp_path / "done"
    process = subprocess.Popen([sys.executable, "-c", DYING, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    wait_for(path)


def test_nobody_waits_for_what_is_put_back_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "done"

    def put_back() -> None:
        time.sleep(2)
        path.write_text("back")

    began = time.monotonic()
    with pytest.raises(RuntimeError), DeathWatchdog(put_back):
        raise RuntimeError
    assert time.monotonic() - began < 1.5
    wait_for(path)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.read_text() == "back"
