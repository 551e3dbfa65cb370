"""A run of tests that leaves processes behind fails, names them and ends them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

TESTS = Path(__file__).parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from forked_run import ForkedRun
from left_processes import LeftProcesses
def pytest_configure(config):
    config.pluginmanager.register(LeftProcesses((), end_s={{end_s}}))
    if {{is_forked}}:
        config.pluginmanager.register(ForkedRun(2))
"""
STARTS = """
import subprocess
from pathlib import Path
def test_start():
    program = "import os, subprocess; print(subprocess.Popen(['sleep', '{seconds}'], stdout=subprocess.DEVNULL).pid)"
    Path("pid").write_text(subprocess.check_output(["{python}", "-c", program], text=True))
def test_other():
    pass
"""
FORKED = pytest.mark.parametrize("is_forked", [False, True])


def run(folder: Path, seconds: float, end_s: float, *, is_forked: bool) -> tuple[int, str, int]:
    """The exit code of a run that starts an orphan for some seconds, what it printed, and the orphan's number."""
    (folder / "conftest.py").write_text(CONFTEST.format(end_s=end_s, is_forked=is_forked))
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_own.py").write_text(STARTS.format(seconds=seconds, python=sys.executable))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout, int((folder / "pid").read_text())


@FORKED
def test_an_orphan_fails_the_run_and_is_ended(tmp_path: Path, is_forked: bool) -> None:
    code, printed, pid = run(tmp_path, 1000, 0.5, is_forked=is_forked)
    assert code == 6
    assert f"{pid} sleep 1000" in printed
    assert "2 passed" in printed
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


@FORKED
def test_what_ends_soon_is_waited_for(tmp_path: Path, is_forked: bool) -> None:
    code, printed, pid = run(tmp_path, 1.5, 60, is_forked=is_forked)
    assert (code, "left processes behind" in printed) == (0, False)
    assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
