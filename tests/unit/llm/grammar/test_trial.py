"""Grammars are tried in a process of their own: what ends that one is refused, and the next grammar gets another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llguidance
import pytest
from waiting import until

from trireme.llm import Engine, SamplingError
from trireme.llm.grammar import trial_main, trial_process
from trireme.llm.grammar.sources import json_source, lark_source
from trireme.llm.grammar.trial import GrammarTrials, TrialError
from trireme.llm.grammar.trial_line import AT_A_TIME, NoTrialError
from trireme.llm.unbegun import NotWantedError

GOOD = json_source({"type": "object", "properties": {"name": {"type": "string"}}})
LONG_RULES = "start: r0\n" + "\n".join(f'r{at}: "a" r{at + 1}' for at in range(4000)) + '\nr4000: "b"'
LONG_TERMINALS = "start: T0\n" + "\n".join(f'T{at}: "a" T{at + 1}' for at in range(5000)) + '\nT5000: "b"'
MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": prime} for prime in (9973, 9967, 9949, 9941)]}
ONE_MULTIPLE = {"type": "integer", "multipleOf": 9_999_991}


def references(kind: str, count: int = 3000) -> dict[str, Any]:
    """A schema whose definitions name one another in a row."""

    def entry(number: int) -> dict[str, Any]:
        following = {"$ref": f"#/$defs/d{number + 1}"}
        if kind == "array":
            return {"type": "array", "items": following}
        if kind == "object":
            return {"type": "object", "properties": {"a": following}, "required": ["a"]}
        return following

    entries = {f"d{number}": entry(number) for number in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**entries, f"d{count}": {"type": "string"}}}


class Bytes:
    """A vocabulary of single bytes."""

    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (256,)
    bos_token_id = None
    eos_token_ids = (256,)


@pytest.fixture
def tried() -> Iterator[GrammarTrials]:
    found = GrammarTrials()
    yield found
    found.close()


def test_a_good_grammar_passes_and_the_process_is_kept(tried: GrammarTrials) -> None:
    tried.check(GOOD, Bytes)
    first = tried.pid
    tried.check(lark_source('start: "a" | "b"'), Bytes)
    assert tried.pid == first is not None


def test_what_the_library_refuses_is_told_and_the_process_is_kept(tried: GrammarTrials) -> None:
    tried.check(GOOD, Bytes)
    first = tried.pid
    with pytest.raises(TrialError, match="whale"):
        tried.check(json_source({"type": "whale"}), Bytes)
    assert tried.pid == first


@pytest.mark.parametrize(
    "source",
    [
        lark_source(LONG_RULES),
        lark_source(LONG_TERMINALS),
        json_source(references("object")),
        json_source(references("array")),
        json_source(references("bare")),
    ],
)
def test_what_overflows_the_stack_is_refused_and_the_next_is_tried(tried: GrammarTrials, source: str) -> None:
    with pytest.raises(TrialError, match="nested too deeply"):
        tried.check(source, Bytes)
    tried.check(GOOD, Bytes)


def test_two_hundred_definitions_in_a_row_pass(tried: GrammarTrials) -> None:
    for kind in ("object", "array", "bare"):
        tried.check(json_source(references(kind, 200)), Bytes)


@pytest.mark.parametrize("schema", [ONE_MULTIPLE, MULTIPLES])
def test_what_never_ends_is_refused_and_the_next_is_tried(schema: dict[str, Any]) -> None:
    tried = GrammarTrials((4,))
    try:
        with pytest.raises(TrialError, match=r"takes longer than 4 s|MiB of memory"):
            tried.check(json_source(schema), Bytes)
        tried.check(json_source({"type": "null"}), Bytes)
    finally:
        tried.close()


def test_those_that_take_all_of_their_time_hold_up_no_other() -> None:
    trials = GrammarTrials((0.02, 120))
    ends: list[BaseException] = []

    def try_slow(number: int) -> None:
        try:
            trials.check(json_source({**MULTIPLES, "title": f"{number}"}), Bytes)
        except (TrialError, NoTrialError) as error:
            ends.append(error)

    slow = [threading.Thread(target=try_slow, args=(number,)) for number in range(2 * AT_A_TIME)]
    try:
        for thread in slow:
            thread.start()
        for _ in range(2):
            trials.check(GOOD, Bytes)
        assert not ends
    finally:
        trials.close()
        for thread in slow:
            thread.join(30)
    assert [str(error) for error in ends] == ["the engine is closed"] * len(slow)
    assert trials.pid is None


def test_one_that_needs_more_than_its_first_turn_gets_another() -> None:
    trials = GrammarTrials((0.001, 120))
    try:
        taken_bytes = trials.check(json_source({"type": "integer", "multipleOf": 9973}), Bytes)
        assert 0 < taken_bytes < 256 << 20
    finally:
        trials.close()


def test_a_trial_tells_about_as_much_memory_as_compiling_takes_from_the_process_that_asks() -> None:
    program = (
        "import sys\n"
        "sys.path.append('tests')\n"
        "from tests.unit.llm.grammar import test_trial as own\n"
        "own.print_told_and_taken()\n"
    )
    told = json.loads(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout)
    for told_bytes, taken_bytes in told:
        assert 0.5 * taken_bytes < told_bytes < 2 * taken_bytes + (256 << 10), told


def print_told_and_taken() -> None:
    """Of grammars of three sizes: the mean of what their trials have told, and of what they have taken here."""
    message = trial_process._message(Bytes)
    vocabulary = llguidance.LLTokenizer(llguidance.TokenizerWrapper(trial_main.Vocabulary(message)), eos_token=[256])
    tried, found, held = GrammarTrials((120,)), list[tuple[float, float]](), list[Any]()
    sources = [
        [json_source({"type": "object", "properties": {f"p{at}": {"type": "string"}}}) for at in range(40)],
        [json_source({"enum": [f"{at} of {of} {'x' * 40}" for at in range(2000)]}) for of in range(10)],
        [json_source({"type": "integer", "multipleOf": 49_999})],
    ]
    for source in (GOOD, sources[1][0]):  # what is there once for all of them
        trial_main.compiled(llguidance, vocabulary, source)
    for alike in sources:
        told_bytes = sum(tried.check(source, Bytes) for source in alike)
        before = trial_main._own_bytes()
        held += [trial_main.compiled(llguidance, vocabulary, source) for source in alike]
        found.append((told_bytes / len(alike), (trial_main._own_bytes() - before) / len(alike)))
    tried.close()
    print(json.dumps(found))


def test_a_trial_that_nobody_waits_for_any_more_ends() -> None:
    trials, asked, is_wanted = GrammarTrials((120,)), threading.Event(), [True]
    told: list[BaseException] = []

    def still_wanted() -> bool:
        if trials.pid is not None and children(trials.pid):
            asked.set()
        return is_wanted[0]

    def ask() -> None:
        try:
            trials.check(json_source(MULTIPLES), Bytes, still_wanted)
        except NotWantedError as error:
            told.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        until(lambda: trials.look_again() or asked.is_set(), 60)
        is_wanted[0] = False
        trials.look_again()
        asking.join(60)
        assert len(told) == 1
        assert trials.pid is not None
        until(lambda: not children(trials.pid), 60)
        trials.check(GOOD, Bytes)
    finally:
        trials.close()


def test_one_that_is_wanted_again_the_moment_after_is_not_taken_for_one_that_had_its_time() -> None:
    trials, was_left = GrammarTrials((120,)), threading.Event()

    def is_wanted() -> bool:
        if was_left.is_set() or trials.pid is None or not children(trials.pid):
            return True
        was_left.set()
        return False

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(trials.check, json_source(MULTIPLES), Bytes, is_wanted)
        try:
            until(lambda: trials.look_again() or was_left.is_set(), 60)
            assert isinstance(asked.exception(60), NotWantedError)
        finally:
            trials.close()


def children(pid: int | None) -> list[str]:
    """Those of the process, which has one thread."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_what_takes_all_memory_is_refused_and_the_next_is_tried() -> None:
    tried = GrammarTrials((120,))
    try:
        with pytest.raises(TrialError, match="takes more than 256 MiB of memory"):
            tried.check(json_source(ONE_MULTIPLE), Bytes)
        tried.check(GOOD, Bytes)
    finally:
        tried.close()


def test_a_process_that_was_killed_while_idle_is_replaced(tried: GrammarTrials) -> None:
    tried.check(GOOD, Bytes)
    first = tried.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    tried.check(GOOD, Bytes)
    assert tried.pid != first


def kill_once_at_work(pid: int, is_child: bool, number: int) -> None:
    until(lambda: children(pid), 60)
    os.kill(int(children(pid)[0]) if is_child else pid, number)


@pytest.mark.parametrize(
    ("is_child", "number", "told"),
    [
        (False, signal.SIGKILL, "that tries grammars was killed"),
        (True, signal.SIGKILL, "that tries grammars was killed"),
        (True, signal.SIGTERM, "that tried a grammar ended with -15"),
    ],
)
def test_a_process_that_was_killed_at_work_is_no_fault_of_the_grammar(is_child: bool, number: int, told: str) -> None:
    tried = GrammarTrials((120,))
    try:
        tried.check(GOOD, Bytes)
        assert tried.pid is not None
        kill = threading.Thread(target=kill_once_at_work, args=(tried.pid, is_child, number))
        kill.start()
        with pytest.raises(NoTrialError, match=f"{told}; send the request again"):
            tried.check(json_source(MULTIPLES), Bytes)
        kill.join(60)
        tried.check(GOOD, Bytes)
    finally:
        tried.close()


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_process_that_hangs_is_no_fault_of_the_grammar_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """One that is too large for the pipe cannot even be handed over."""
    monkeypatch.setattr(trial_process, "_ANSWER_S", 0.5, raising=False)
    tried, told = GrammarTrials((0.02,)), list[BaseException]()
    tried.check(GOOD, Bytes)
    first = tried.pid
    assert first is not None

    def ask() -> None:
        try:
            tried.check(lark_source(f'start: "{"a" * size}"'), Bytes)
        except (NoTrialError, TrialError) as error:
            told.append(error)

    os.kill(first, signal.SIGSTOP)
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        asking.join(20)
        assert [type(error) for error in told] == [NoTrialError]
        assert "send the request again" in str(told[0])
        tried.check(GOOD, Bytes)
        assert tried.pid not in (None, first)
    finally:
        tried.close()
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
        ("resource.setrlimit(resource.RLIMIT_AS, (250 << 20,) * 2)", "not allowed to raise maximum limit"),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_the_grammar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: GrammarTrials, change: str, told: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, resource, runpy, threading\n"
        "def failing(error):\n"
        "    def fail(*given):\n"
        "        raise error\n"
        "    return fail\n"
        f"{change}\n"
        f"runpy.run_path({str(trial_process._PROGRAM)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(trial_process, "_PROGRAM", program)
    pids = set()
    for _ in range(2):
        with pytest.raises(NoTrialError, match=f"a grammar cannot be tried: .*{told}"):
            tried.check(GOOD, Bytes)
        pids.add(tried.pid)
    assert len(pids) == 1


@pytest.mark.parametrize("left", [0, 1])
def test_a_want_of_threads_where_grammars_are_asked_for_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tried: GrammarTrials, left: int
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
        with pytest.raises(NoTrialError, match="cannot be started: can't start new thread"):
            tried.check(GOOD, Bytes)
    assert tried.pid is None
    tried.check(GOOD, Bytes)


def test_what_is_left_of_a_killed_process_ends_with_it() -> None:
    tried = GrammarTrials((120,))
    tried.check(GOOD, Bytes)
    assert tried.pid is not None

    def ask() -> None:
        with pytest.raises(NoTrialError):
            tried.check(json_source(MULTIPLES), Bytes)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: children(tried.pid), 60)
    left = int(children(tried.pid)[0])
    os.kill(tried.pid, signal.SIGKILL)
    asking.join(60)
    until(lambda: not _is_running(left), 60)
    tried.close()


def test_closing_ends_a_trial_that_is_under_way() -> None:
    tried = GrammarTrials((120,))
    tried.check(GOOD, Bytes)
    told: list[str] = []

    def ask() -> None:
        try:
            tried.check(json_source(MULTIPLES), Bytes)
        except NoTrialError as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: children(tried.pid), 60)
    tried.close()
    asking.join(60)
    assert told == ["the engine is closed"]
    assert tried.pid is None


def test_where_it_cannot_be_started_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tried: GrammarTrials) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(NoTrialError, match=r"cannot be started: .*/nowhere/python"):
        tried.check(GOOD, Bytes)


def test_the_process_ends_with_the_one_that_started_it_in_the_midst_of_a_trial() -> None:
    program = (
        "import sys, threading, time\n"
        "sys.path.append('tests')\n"
        "from tests.unit.llm.grammar import test_trial as own\n"
        "tried = own.GrammarTrials((120,))\n"
        "tried.check(own.GOOD, own.Bytes)\n"
        "threading.Thread(target=tried.check, args=(own.json_source(own.MULTIPLES), own.Bytes), daemon=True).start()\n"
        "own.until(lambda: own.children(tried.pid), 60)\n"
        "print(tried.pid, *own.children(tried.pid), flush=True)\n"
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


def test_the_engine_refuses_with_the_options_name_and_goes_on(scribe: Engine) -> None:
    with pytest.raises(SamplingError, match="'guided_grammar' cannot be compiled: it is nested too deeply"):
        scribe.grammars.notation(LONG_RULES)
    with pytest.raises(SamplingError, match="'response_format' cannot be compiled: it is nested too deeply"):
        scribe.grammars.json_schema(json.dumps(references("bare")), "response_format")
    scribe.grammars.json_schema({"type": "boolean", "title": "after them"})
