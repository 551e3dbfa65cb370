"""Grammars are checked in a process of their own: what ends that one is refused, and the next grammar gets another."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llguidance
import pytest
from checked_grammars import GOOD, MULTIPLES, Bytes, children
from waiting import until

from trireme.llm import Engine, SamplingError
from trireme.llm.admission_errors import NotWantedError
from trireme.llm.grammar import compile_check_main, compile_check_process
from trireme.llm.grammar.compile_check_queue import AT_A_TIME, CheckUnavailableError
from trireme.llm.grammar.compile_checks import CompileCheckError, CompileChecks
from trireme.llm.grammar.sources import json_source, lark_source

LONG_RULES = "start: r0\n" + "\n".join(f'r{at}: "a" r{at + 1}' for at in range(4000)) + '\nr4000: "b"'
LONG_TERMINALS = "start: T0\n" + "\n".join(f'T{at}: "a" T{at + 1}' for at in range(5000)) + '\nT5000: "b"'
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


def test_a_good_grammar_passes_and_the_process_is_kept(checks: CompileChecks) -> None:
    checks.check(GOOD, Bytes)
    first = checks.pid
    checks.check(lark_source('start: "a" | "b"'), Bytes)
    assert checks.pid == first is not None


def test_what_the_library_refuses_is_told_and_the_process_is_kept(checks: CompileChecks) -> None:
    checks.check(GOOD, Bytes)
    first = checks.pid
    with pytest.raises(CompileCheckError, match="whale"):
        checks.check(json_source({"type": "whale"}), Bytes)
    assert checks.pid == first


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
def test_what_overflows_the_stack_is_refused_and_the_next_is_checked(checks: CompileChecks, source: str) -> None:
    with pytest.raises(CompileCheckError, match="nested too deeply"):
        checks.check(source, Bytes)
    checks.check(GOOD, Bytes)


def test_two_hundred_definitions_in_a_row_pass(checks: CompileChecks) -> None:
    for kind in ("object", "array", "bare"):
        checks.check(json_source(references(kind, 200)), Bytes)


@pytest.mark.parametrize("schema", [ONE_MULTIPLE, MULTIPLES])
def test_what_never_ends_is_refused_and_the_next_is_checked(schema: dict[str, Any]) -> None:
    checks = CompileChecks((1,))
    try:
        with pytest.raises(CompileCheckError, match=r"takes longer than 1 s|MiB of memory"):
            checks.check(json_source(schema), Bytes)
        checks.check(json_source({"type": "null"}), Bytes)
    finally:
        checks.close()


def test_those_that_take_all_of_their_time_hold_up_no_other() -> None:
    checks = CompileChecks((0.02, 120))
    ends: list[BaseException] = []

    def try_slow(number: int) -> None:
        try:
            checks.check(json_source({**MULTIPLES, "title": f"{number}"}), Bytes)
        except (CompileCheckError, CheckUnavailableError) as error:
            ends.append(error)

    slow = [threading.Thread(target=try_slow, args=(number,)) for number in range(2 * AT_A_TIME)]
    try:
        for thread in slow:
            thread.start()
        for _ in range(2):
            checks.check(GOOD, Bytes)
        assert not ends
    finally:
        checks.close()
        for thread in slow:
            thread.join(30)
    assert [str(error) for error in ends] == ["the engine is closed"] * len(slow)
    assert checks.pid is None


def test_one_that_needs_more_than_its_first_turn_gets_another() -> None:
    checks = CompileChecks((0.001, 120))
    try:
        taken_bytes = checks.check(json_source({"type": "integer", "multipleOf": 9973}), Bytes)
        assert 0 < taken_bytes < 256 << 20
    finally:
        checks.close()


def test_a_check_tells_about_as_much_memory_as_compiling_takes_from_the_process_that_asks() -> None:
    program = (
        "import sys\n"
        "sys.path.append('tests')\n"
        "from tests.unit.llm.grammar import test_compile_checks as own\n"
        "own.print_told_and_taken()\n"
    )
    told = json.loads(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout)
    for told_bytes, taken_bytes in told:
        assert 0.5 * taken_bytes < told_bytes < 2 * taken_bytes + (256 << 10), told


def print_told_and_taken() -> None:
    """Of grammars of three sizes: the mean of what their checks have told, and of what they have taken here."""
    message = compile_check_process._message(Bytes)
    vocabulary = llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(compile_check_main.Vocabulary(message)), eos_token=[256]
    )
    checks, found, held = CompileChecks((120,)), list[tuple[float, float]](), list[Any]()
    sources = [
        [json_source({"type": "object", "properties": {f"p{at}": {"type": "string"}}}) for at in range(40)],
        [json_source({"enum": [f"{at} of {of} {'x' * 40}" for at in range(2000)]}) for of in range(10)],
        [json_source({"type": "integer", "multipleOf": 49_999})],
    ]
    for source in (GOOD, sources[1][0]):  # what is there once for all of them
        compile_check_main.compiled(llguidance, vocabulary, source)
    for alike in sources:
        told_bytes = sum(checks.check(source, Bytes) for source in alike)
        before = compile_check_main._own_bytes()
        held += [compile_check_main.compiled(llguidance, vocabulary, source) for source in alike]
        found.append((told_bytes / len(alike), (compile_check_main._own_bytes() - before) / len(alike)))
    checks.close()
    print(json.dumps(found))


def test_a_check_that_nobody_waits_for_any_more_ends() -> None:
    checks, asked, is_wanted = CompileChecks((120,)), threading.Event(), [True]
    told: list[BaseException] = []

    def still_wanted() -> bool:
        if checks.pid is not None and children(checks.pid):
            asked.set()
        return is_wanted[0]

    def ask() -> None:
        try:
            checks.check(json_source(MULTIPLES), Bytes, still_wanted)
        except NotWantedError as error:
            told.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        until(lambda: checks.look_again() or asked.is_set(), 60)
        is_wanted[0] = False
        checks.look_again()
        asking.join(60)
        assert len(told) == 1
        assert checks.pid is not None
        until(lambda: not children(checks.pid), 60)
        checks.check(GOOD, Bytes)
    finally:
        checks.close()


def test_one_that_is_wanted_again_the_moment_after_is_not_taken_for_one_that_had_its_time() -> None:
    checks, was_left = CompileChecks((120,)), threading.Event()

    def is_wanted() -> bool:
        if was_left.is_set() or checks.pid is None or not children(checks.pid):
            return True
        was_left.set()
        return False

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(checks.check, json_source(MULTIPLES), Bytes, is_wanted)
        try:
            until(lambda: checks.look_again() or was_left.is_set(), 60)
            assert isinstance(asked.exception(60), NotWantedError)
        finally:
            checks.close()


def test_what_takes_all_memory_is_refused_and_the_next_is_checked() -> None:
    checks = CompileChecks((120,))
    try:
        with pytest.raises(CompileCheckError, match="takes more than 256 MiB of memory"):
            checks.check(json_source(ONE_MULTIPLE), Bytes)
        checks.check(GOOD, Bytes)
    finally:
        checks.close()


def test_the_engine_refuses_with_the_options_name_and_goes_on(scribe: Engine) -> None:
    with pytest.raises(SamplingError, match="'guided_grammar' cannot be compiled: it is nested too deeply"):
        scribe.grammars.notation(LONG_RULES)
    with pytest.raises(SamplingError, match="'response_format' cannot be compiled: it is nested too deeply"):
        scribe.grammars.json_schema(json.dumps(references("bare")), "response_format")
    scribe.grammars.json_schema({"type": "boolean", "title": "after them"})
