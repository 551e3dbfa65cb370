"""`pytest --forks`: what it reports of tests that pass, fail, crash, and of what a session leaves behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

TESTS = Path(__file__).parents[2]
CONFTEST = f"""
import os, sys
import pytest
sys.path.insert(0, {str(TESTS)!r})
from forked_run import ForkedRun
def pytest_configure(config):
    config.pluginmanager.register(ForkedRun(2))
@pytest.fixture(scope="session")
def session_thing(tmp_path_factory):
    yield os.getpid()
    with open("ended", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
@pytest.fixture(scope="module")
def module_thing():
    yield object()
"""


def run(folder: Path, *words: str, processes: str = "2", **files: str) -> tuple[int, dict[str, int], str]:
    """The exit code, how many tests went which way, and everything that was printed."""
    (folder / "conftest.py").write_text(CONFTEST.replace("ForkedRun(2)", f"ForkedRun({processes})"))
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    for name, code in files.items():
        (folder / f"test_{name}.py").write_text(f"import gc, os, signal, sys\nimport pytest\n{code}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words]
    command.append(f"--basetemp={folder / 'tmp'}")  # in the one of all runs each clears up what others do
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    counts = {
        kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", "".join(last))
    }
    return done.returncode, counts, done.stdout + done.stderr


def test_every_kind_of_end_is_counted(tmp_path: Path) -> None:
    code, counts, printed = run(
        tmp_path,
        one="def test_good(): pass\ndef test_bad():\n    print('said before')\n    assert 1 + 1 == 3",
        two="@pytest.mark.xfail\ndef test_expected(): assert False\n@pytest.mark.skip\ndef test_left_out(): pass",
        three="@pytest.fixture\ndef broken(): raise ValueError('no')\ndef test_not_begun(broken): pass",
    )
    assert (code, counts) == (1, {"passed": 1, "failed": 1, "skipped": 1, "xfailed": 1, "error": 1})
    assert "said before" in printed
    assert "assert (1 + 1) == 3" in printed


def test_a_file_stays_in_one_process_and_the_collector_runs_nothing(tmp_path: Path) -> None:
    code = "SEEN = []\nCOLLECTOR = os.getpid()\n"
    code += "".join(f"def test_{n}(session_thing): SEEN.append(os.getpid())\n" for n in range(3))
    code += "def test_last(): assert len(SEEN) == 3 and len(set(SEEN)) == 1 and COLLECTOR not in SEEN\n"
    assert run(tmp_path, one=code, two=code, three=code)[:2] == (0, {"passed": 12})
    assert len(set((tmp_path / "ended").read_text().split())) in (1, 2)  # once in each process that made it


def test_what_a_folder_shares_ends_before_its_process_goes_on(tmp_path: Path) -> None:
    shared, others = tmp_path / "tests/contract/clients", tmp_path / "tests/unit"
    for folder in (shared, others):
        folder.mkdir(parents=True)
    for name in ("one", "two"):
        code = "import os\ndef test_a(session_thing): assert not os.path.exists('ended')\n"
        (shared / f"test_{name}.py").write_text(code)
        # One of these is in the process of the folder, which so lasts no shorter than they wait.
        code = f"import sys\nsys.path.insert(0, {str(TESTS)!r})\nimport os\nfrom waiting import until\n"
        code += "def test_b(): until(lambda: os.path.exists('ended'))\n"
        (others / f"test_{name}_other.py").write_text(code)
    code, counts, printed = run(tmp_path)
    assert (code, counts) == (0, {"passed": 4}), printed
    assert len((tmp_path / "ended").read_text().split()) == 1


def test_a_filler_runs_unit_tests_from_the_end_and_lets_others_go_first(tmp_path: Path) -> None:
    unit = tmp_path / "tests/unit"
    unit.mkdir(parents=True)
    for name in ("early", "late"):
        code = "import os\ndef test_a():\n    with open('filled', 'a') as file:\n"
        (unit / f"test_{name}.py").write_text(f"{code}        file.write(f'{name} {{os.nice(0)}}\\n')\n")
    waiting = f"sys.path.insert(0, {str(TESTS)!r})\nfrom pathlib import Path\nfrom waiting import until\n"
    waiting += "def is_filled(): return Path('filled').exists() and Path('filled').read_text().count('\\n') == 2\n"
    waiting += "def test_b():\n    until(is_filled)\n    Path('own').write_text(str(os.nice(0)))\n"
    assert run(tmp_path, processes="1, fillers=1", one=waiting)[:2] == (0, {"passed": 3})
    own = int((tmp_path / "own").read_text())
    assert (tmp_path / "filled").read_text() == f"late {own + 5}\nearly {own + 5}\n"


def test_a_filler_that_crashes_is_replaced_and_one_without_unit_tests_ends(tmp_path: Path) -> None:
    unit = tmp_path / "tests/unit"
    unit.mkdir(parents=True)
    crash = "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_b(): pass\n"
    (unit / "test_crash.py").write_text(crash)
    files = {f"n{number}": "def test_c(): pass" for number in range(3)}
    code, counts, printed = run(tmp_path, processes="1, fillers=2", **files)
    assert (code, counts) == (1, {"passed": 4, "error": 1})
    assert "ended with -9 while it ran this" in printed


def test_hypothesis_knows_all_characters_before_the_first_test(tmp_path: Path) -> None:
    code = (
        "from hypothesis import given, strategies as st\n"
        "from hypothesis.internal import charmap\n"
        "def test_characters(): assert charmap._charmap\n"
        "@given(st.integers())\n"
        "def test_drawn(number): pass\n"
    )
    assert run(tmp_path, one=code, two=code)[:2] == (0, {"passed": 4})


def test_a_crash_fails_its_test_and_no_other(tmp_path: Path) -> None:
    code = "def test_a(): pass\ndef test_b(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_c(): pass\n"
    exit_code, counts, printed = run(tmp_path, one=code, two="def test_d(): pass")
    assert (exit_code, counts) == (1, {"passed": 3, "error": 1})
    assert "ended with -9 while it ran this" in printed


def test_a_test_without_end_fails_by_name(tmp_path: Path) -> None:
    code = "import time\n@pytest.mark.timeout(1)\ndef test_a(): time.sleep(60)\ndef test_b(): pass\n"
    exit_code, counts, printed = run(tmp_path, one=code)
    assert (exit_code, counts) == (1, {"passed": 1, "failed": 1})
    assert "Timeout (>1.0s) from pytest-timeout" in printed


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.fixture(scope='session')\ndef leaving():\n    yield\n    raise ValueError('too late')\n"
        "def test_a(leaving): pass",
        "class Kept:\n    def __del__(self): raise ValueError('too late')\n"
        "def test_a():\n    kept = Kept()\n    kept.itself = kept",
    ],
    ids=["fixture", "unraisable"],
)
def test_what_goes_wrong_behind_the_last_test_is_told(code: str, tmp_path: Path) -> None:
    exit_code, counts, printed = run(tmp_path, one=code)
    assert (exit_code, counts) == (1, {"passed": 1, "error": 1})
    assert "too late" in printed


def test_the_first_failure_ends_the_run_where_that_is_wished(tmp_path: Path) -> None:
    files = {f"n{number}": "def test_a(): assert False" for number in range(9)}
    code, counts, _ = run(tmp_path, "-x", **files)
    assert code in (1, 2)
    assert counts["failed"] < 9


def test_threads_that_an_import_starts_are_refused(tmp_path: Path) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n"
    exit_code, _, printed = run(tmp_path, one=code + "def test_a(): pass", two="def test_b(): pass")
    assert exit_code == 4
    assert "importing the tests has started threads" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_what_its_fixtures_started(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    code = "import time\ndef test_a(session_thing):\n    open('begun', 'w').close()\n    time.sleep(60)\n"
    (tmp_path / "test_one.py").write_text(code)
    with subprocess.Popen([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, stdout=subprocess.PIPE) as running:
        until((tmp_path / "begun").exists)
        running.send_signal(number)
        running.communicate(timeout=50)
    assert running.returncode == 2
    assert len((tmp_path / "ended").read_text().split()) == 1
