"""What has failed among other tests and is run again alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "run_again.py"
ONCE = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range({count}))
def test_unsteady(number):
    mark = Path(f"{{number}}.seen")
    was_there = mark.exists()
    mark.touch()
    assert was_there
"""


def run(folder: Path, code: str) -> tuple[int, str]:
    """As the Makefile does it."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_own.py").write_text(code)
    first = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=folder, capture_output=True, check=False)
    command = [sys.executable, str(SCRIPT), str(first.returncode)]
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return again.returncode, again.stdout


def test_what_passes_alone_is_named_and_the_run_passes(tmp_path: Path) -> None:
    code, printed = run(tmp_path, ONCE.format(count=2))
    assert code == 0
    assert printed.splitlines()[-3:] == [
        "UNSTEADY: these failed among others and passed alone",
        "test_own.py::test_unsteady[0]",
        "test_own.py::test_unsteady[1]",
    ]


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, ONCE.format(count=1) + "def test_wrong(): assert False\n")
    assert code == 1
    assert "UNSTEADY" not in printed


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    code, printed = run(tmp_path, ONCE.format(count=6))
    assert code == 1
    assert "more than 5 are not run again" in printed


@pytest.mark.parametrize("given", [0, 2, 3, 4, 5])
def test_other_ends_stay_what_they_are(tmp_path: Path, given: int) -> None:
    command = [sys.executable, str(SCRIPT), str(given)]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == given
