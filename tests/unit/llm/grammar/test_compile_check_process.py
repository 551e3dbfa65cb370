"""A process that checks grammars and ends, hangs or lacks something: no grammar is blamed, and the next has another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from checked_grammars import GOOD, MULTIPLES, Bytes, children
from waiting import until

from trireme.llm.grammar import compile_check_process
from trireme.llm.grammar.compile_check_queue import TURN_SECONDS, CheckUnavailableError
from trireme.llm.grammar.compile_checks import CompileCheckError, CompileChecks
from trireme.llm.grammar.sources import json_source, lark_source

SHIPPED = Path(__file__).parents[4] / "examples" / "model_repository" / "scribe" / "1"


def test_a_process_that_was_killed_while_idle_is_replaced(checks: CompileChecks) -> None:
    checks.check(GOOD, Bytes)
    first = checks.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    checks.check(GOOD, Bytes)
    assert checks.pid != first


def kill_once_at_work(pid: int, is_child: bool, number: int) -> None:
    until(lambda: children(pid), 60)
    os.kill(int(children(pid)[0]) if is_child else pid, number)


@pytest.mark.parametrize(
    ("is_child", "number", "told"),
    [
        (False, signal.SIGKILL, "that checks grammars was killed"),
        (True, signal.SIGKILL, "that checks grammars was killed"),
        (True, signal.SIGTERM, "that checked a grammar ended with -15"),
    ],
)
def test_a_process_that_was_killed_at_work_is_no_fault_of_the_grammar(is_child: bool, number: int, told: str) -> None:
    checks = CompileChecks((120,))
    try:
        checks.check(GOOD, Bytes)
        assert checks.pid is not None
        kill = threading.Thread(target=kill_once_at_work, args=(checks.pid, is_child, number))
        kill.start()
        with pytest.raises(CheckUnavailableError, match=f"{told}; send the request again"):
            checks.check(json_source(MULTIPLES), Bytes)
        kill.join(60)
        checks.check(GOOD, Bytes)
    finally:
        checks.close()


def test_the_guide_says_how_long_all_turns_of_a_grammar_may_take() -> None:
    guide = (Path(__file__).resolve().parents[4] / "docs/structured-output.md").read_text(encoding="utf-8")
    assert f"({sum(TURN_SECONDS):g} s with those before)" in guide
    limits_s = [compile_check_process._PATIENCE * seconds + compile_check_process._MOMENT_S for seconds in TURN_SECONDS]
    assert f"the turns take up to {sum(limits_s):.1f} s" in guide


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_process_that_hangs_is_no_fault_of_the_grammar_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """One that is too large for the pipe cannot even be handed over."""
    monkeypatch.setattr(compile_check_process, "_ANSWER_S", 0.5, raising=False)
    checks, told = CompileChecks((0.02,)), list[BaseException]()
    checks.check(GOOD, Bytes)
    first = checks.pid
    assert first is not None

    def ask() -> None:
        try:
            checks.check(lark_source(f'start: "{"a" * size}"'), Bytes)
        except (CheckUnavailableError, CompileCheckError) as error:
            told.append(error)

    os.kill(first, signal.SIGSTOP)
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        asking.join(20)
        assert [type(error) for error in told] == [CheckUnavailableError]
        assert "send the request again" in str(told[0])
        checks.check(GOOD, Bytes)
        assert checks.pid not in (None, first)
    finally:
        checks.close()
        asking.join(20)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("threading.Thread.start = failing(RuntimeError('cannot start new thread'))", "cannot start new thread"),
        ("threading.Thread.start = failing(MemoryError())", "MemoryError"),
        ("os.pipe = failing(OSError(24, 'Too many open files'))", "Too many open files"),
        ("os.fork = failing(OSError(11, 'Resource temporarily unavailable'))", "Resource temporarily unavailable"),
        ("os.nice = failing(PermissionError(1, 'Operation not permitted'))", "Operation not permitted"),
        ("resource.getpagesize = failing(OSError(23, 'Too many open files in system'))", "open files in system"),
        (
            "resource.setrlimit(resource.RLIMIT_AS, (250 << 20,) * 2)",
            "the limit of the address space .* 256 may be needed",
        ),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_the_grammar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: CompileChecks, change: str, told: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, resource, runpy, threading\n"
        "def failing(error):\n"
        "    def fail(*given):\n"
        "        raise error\n"
        "    return fail\n"
        f"{change}\n"
        f"runpy.run_path({str(compile_check_process._PROGRAM)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(compile_check_process, "_PROGRAM", program)
    pids = set()
    for _ in range(2):
        with pytest.raises(CheckUnavailableError, match=f"a grammar cannot be checked: .*{told}"):
            checks.check(GOOD, Bytes)
        pids.add(checks.pid)
    assert len(pids) == 1


@pytest.mark.parametrize("left", [0, 1])
def test_a_want_of_threads_where_grammars_are_asked_for_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, checks: CompileChecks, left: int
) -> None:
    """One thread watches the time that the process takes to start, one listens to it."""
    places, start = [None] * left, threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if not places:
            raise RuntimeError("can't start new thread")
        places.pop()
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_one)
        with pytest.raises(CheckUnavailableError, match="cannot be started: can't start new thread"):
            checks.check(GOOD, Bytes)
    assert checks.pid is None
    checks.check(GOOD, Bytes)


def test_what_is_left_of_a_killed_process_ends_with_it() -> None:
    checks = CompileChecks((120,))
    checks.check(GOOD, Bytes)
    assert checks.pid is not None

    def ask() -> None:
        with pytest.raises(CheckUnavailableError):
            checks.check(json_source(MULTIPLES), Bytes)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: children(checks.pid), 60)
    left = int(children(checks.pid)[0])
    os.kill(checks.pid, signal.SIGKILL)
    asking.join(60)
    until(lambda: not _is_running(left), 60)
    checks.close()


def test_closing_ends_a_check_that_is_under_way() -> None:
    checks = CompileChecks((120,))
    checks.check(GOOD, Bytes)
    told: list[str] = []

    def ask() -> None:
        try:
            checks.check(json_source(MULTIPLES), Bytes)
        except CheckUnavailableError as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: children(checks.pid), 60)
    checks.close()
    asking.join(60)
    assert told == ["the engine is closed"]
    assert checks.pid is None


def test_where_it_cannot_be_started_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, checks: CompileChecks) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(CheckUnavailableError, match=r"cannot be started: .*/nowhere/python"):
        checks.check(GOOD, Bytes)


def test_the_process_ends_with_the_one_that_started_it_in_the_midst_of_a_check() -> None:
    program = (
        "import sys, threading, time\n"
        "sys.path.append('tests')\n"
        "from tests.unit.llm.grammar import test_compile_check_process as own\n"
        "checks = own.CompileChecks((120,))\n"
        "checks.check(own.GOOD, own.Bytes)\n"
        "threading.Thread(target=checks.check, args=(own.json_source(own.MULTIPLES), own.Bytes), daemon=True).start()\n"
        "own.until(lambda: own.children(checks.pid), 60)\n"
        "print(checks.pid, *own.children(checks.pid), flush=True)\n"
        "time.sleep(120)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        try:
            pids = [int(pid) for pid in starter.stdout.readline().split()]
        finally:
            starter.kill()
    assert len(pids) == 2
    until(lambda: not any(map(_is_running, pids)), 60)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as status:
            return status.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


LITTLE_ADDRESS_SPACE = """
import resource, sys
from pathlib import Path
from trireme.llm.grammar.compiler import GrammarCompiler
from trireme.llm.grammar.compile_check_queue import CheckUnavailableError
from trireme.llm.tokenizer.loading import load_tokenizer

def limit(mebibytes):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (mebibytes << 20), resource.RLIM_INFINITY))

def ask(pattern):
    try:
        return grammars.regex(pattern).start() is not None
    except CheckUnavailableError as error:
        return str(error)

tokenizer = load_tokenizer(Path(sys.argv[1]))
grammars = GrammarCompiler(tokenizer, tokenizer.eos_ids)
limit(5)
print(ask("a"))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(ask("b"))
limit(5)
print(ask("b"))
print(ask("c"))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(ask("c"))
grammars.close()
"""


def test_where_the_address_space_is_limited_no_grammar_is_blamed_and_the_process_lives() -> None:
    command = [sys.executable, "-c", LITTLE_ADDRESS_SPACE, str(SHIPPED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    first, second, kept, third, fourth = done.stdout.splitlines()
    assert "ulimit -v" in first or "llguidance package cannot be loaded" in first
    assert "ulimit -v" in third
    assert (second, kept, fourth) == ("True", "True", "True")
