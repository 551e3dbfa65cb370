"""Grammars are compiled once, and what cannot be compiled is refused with the option's name and the reason."""

from __future__ import annotations

import json
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from trireme.llm import Engine, SamplingError
from trireme.llm.admission_errors import EngineBusyError, NotWantedError
from trireme.llm.grammar import compiler
from trireme.llm.grammar.compile_check_main import compiled
from trireme.llm.grammar.compile_check_queue import CheckUnavailableError
from trireme.llm.grammar.compile_checks import CompileCheckError
from trireme.llm.grammar.compiler import MAX_CHOICES, GrammarCompiler, NewGrammarError
from trireme.llm.grammar.sources import json_source
from trireme.llm.grammar.token_bits import as_mask
from trireme.llm.grammar.vocabulary import Vocabulary, load_library, read_vocabulary


def deep_schema() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(100_000):
        found = {"items": found}
    return found


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda found: found.json_schema({"type": "whale"}), ["'guided_json' cannot be compiled", "whale"]),
        (lambda found: found.json_schema({"not": {}}, "response_format"), ["'response_format'", 'keys: ["not"]']),
        (lambda found: found.json_schema({"oneOf": [{"const": 1}, {"const": 2}]}), ["oneOf", "Write anyOf"]),
        (lambda found: found.json_schema("{"), ["'guided_json' is no JSON"]),
        (lambda found: found.json_schema('{"a":' * 9000 + "1" + "}" * 9000), ["'guided_json' is nested too deeply"]),
        (lambda found: found.json_schema(deep_schema()), ["'guided_json' is nested too deeply"]),
        (lambda found: found.json_schema("[1]"), ["must be a JSON schema"]),
        (lambda found: found.json_schema({"$ref": "http://127.0.0.1/x.json"}), ["does not fetch resources"]),
        (lambda found: found.json_schema({"minimum": 3, "maximum": 2, "type": "integer"}), ["Unsatisfiable"]),
        (lambda found: found.json_schema({"$ref": "#"}), ["'guided_json' cannot be compiled", "no text follows it"]),
        (lambda found: found.regex("(ab"), ["'guided_regex' cannot be compiled", "unclosed group"]),
        (lambda found: found.regex(""), ["'guided_regex' must be a text that is not empty"]),
        (lambda found: found.notation("start: foo"), ["'guided_grammar' cannot be compiled", "unknown name"]),
        (lambda found: found.notation('root ::= "a'), ["'guided_grammar' cannot be compiled", "end of input"]),
        (lambda found: found.choice([]), ["'guided_choice' must be a list"]),
        (lambda found: found.choice(["a", 1]), ["'guided_choice' must be a list"]),
        (lambda found: found.choice("yes"), ["'guided_choice' must be a list"]),
        (lambda found: found.choice(["a"] * 5000), ["'guided_choice' has 5000 texts; at most 4096"]),
        (lambda found: found.json_schema({"enum": ["x" * 300_000]}), ["at most 262144 are compiled"]),
        (lambda found: found.regex("x" * 300_000), ["'guided_regex' has 300000 bytes"]),
    ],
)
def test_what_cannot_be_compiled_is_refused(scribe: Engine, ask: Callable[[Any], Any], words: list[str]) -> None:
    with pytest.raises(SamplingError) as refused:
        ask(scribe.grammars)
    assert all(word in str(refused.value) for word in words), refused.value


@pytest.mark.parametrize("half", [chr(0xDCFF), chr(0xD800)])
@pytest.mark.parametrize(
    ("option", "ask"),
    [
        ("guided_regex", lambda found, text: found.regex(text)),
        ("guided_grammar", lambda found, text: found.notation(f'start: "{text}"')),
        ("guided_choice", lambda found, text: found.choice(["yes", text])),
        ("guided_json", lambda found, text: found.json_schema({"const": [text]})),
        ("guided_json", lambda found, text: found.json_schema({"properties": {text: True}})),
        ("guided_json", lambda found, text: found.json_schema(json.dumps({"const": text}))),
        ("guided_json", lambda found, text: found.json_schema(f'{{"const": "{text}"}}')),
    ],
)
def test_what_is_not_utf8_is_refused(scribe: Engine, option: str, ask: Callable[[Any, str], Any], half: str) -> None:
    with pytest.raises(SamplingError, match=f"^'{option}' is not UTF-8$"):
        ask(scribe.grammars, f"a{half}")


def test_a_reason_has_no_picture_that_needs_lines_of_its_own(scribe: Engine) -> None:
    for ask in (lambda: scribe.grammars.regex("[z-a]"), lambda: scribe.grammars.notation("start: foo")):
        with pytest.raises(SamplingError) as refused:
            ask()
        assert not {"^", "|"} & set(str(refused.value)), refused.value


def test_the_same_grammar_is_compiled_once(scribe: Engine) -> None:
    first = scribe.grammars.json_schema({"type": "integer"})
    assert scribe.grammars.json_schema('{"type": "integer"}') is first
    assert scribe.grammars.json_schema({"type": "number"}) is not first


def test_one_that_many_ask_for_at_once_is_checked_once(scribe: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars:
        checked: list[str] = []
        really_checked = grammars._checks.checked
        monkeypatch.setattr(
            grammars._checks,
            "checked",
            lambda source, *others: checked.append(source) or really_checked(source, *others),
        )
        with ThreadPoolExecutor(8) as threads:
            found = [threads.submit(grammars.json_schema, {"type": "boolean"}) for _ in range(8)]
        assert len({id(one.result()) for one in found}) == 1
        assert len(checked) == 1


@pytest.mark.parametrize(("is_costly", "tries"), [(False, 1), (True, 2)])
def test_one_that_was_refused_is_not_checked_again_at_once(
    scribe: Engine, monkeypatch: pytest.MonkeyPatch, is_costly: bool, tries: int
) -> None:
    now, checked, may_end = [0.0], list[str](), threading.Event()

    @contextmanager
    def refuse(source: str, *others: Any) -> Iterator[int]:
        checked.append(source)
        may_end.wait(20)
        raise CompileCheckError("it takes too long", is_costly)
        yield 0

    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids), lambda: now[0])) as grammars:
        monkeypatch.setattr(grammars._checks, "checked", refuse)
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(grammars.regex, "a") for _ in range(4)]
            may_end.set()
            told = [str(one.exception()) for one in asked]
        assert told == ["'guided_regex' cannot be compiled: it takes too long"] * 4
        for now[0] in (compiler._COSTLY_S - 1, compiler._COSTLY_S + 1):
            grammars.compiles_at_once = now[0] > compiler._COSTLY_S
            with pytest.raises(SamplingError, match="'guided_regex' cannot be compiled: it takes too long"):
                grammars.regex("a")
        assert len(checked) == tries


def test_one_that_could_not_be_checked_is_checked_again(scribe: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars:
        checked = grammars._checks.checked
        monkeypatch.setattr(
            grammars._checks, "checked", lambda *given: (_ for _ in ()).throw(CheckUnavailableError("killed"))
        )
        with pytest.raises(CheckUnavailableError):
            grammars.regex("a")
        monkeypatch.setattr(grammars._checks, "checked", checked)
        assert grammars.regex("a")


def test_one_that_nobody_waits_for_any_more_is_checked_for_who_asks_later(
    scribe: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    @contextmanager
    def give_up(*given: Any) -> Iterator[int]:
        has_begun.set()
        assert may_end.wait(60)
        raise NotWantedError
        yield 0

    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars, ThreadPoolExecutor(2) as pool:
        checked = grammars._checks.checked
        monkeypatch.setattr(grammars._checks, "checked", give_up)
        first = pool.submit(grammars.regex, "a")
        assert has_begun.wait(60)
        second = pool.submit(grammars.regex, "a")
        monkeypatch.setattr(grammars._checks, "checked", checked)
        may_end.set()
        assert isinstance(first.exception(60), NotWantedError)
        assert second.result(60) is grammars.regex("a")


@contextmanager
def compiler_of_large_ones(
    scribe: Engine, monkeypatch: pytest.MonkeyPatch, most_kept: int
) -> Iterator[GrammarCompiler]:
    """Each takes 100 bytes, of 350 that all may take."""

    @contextmanager
    def large(*given: Any) -> Iterator[int]:
        yield 100

    monkeypatch.setattr(compiler, "_MAX_KEPT_BYTES", most_kept)
    monkeypatch.setattr(compiler, "_MAX_ALL_BYTES", 350)
    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars:
        monkeypatch.setattr(grammars._checks, "checked", large)
        yield grammars


def test_large_grammars_leave_sooner_and_those_in_use_have_a_bound(
    scribe: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with compiler_of_large_ones(scribe, monkeypatch, most_kept=250) as grammars:
        followed = [grammars.regex(pattern).start() for pattern in "abc"]
        assert len(grammars._kept) == 2
        with pytest.raises(EngineBusyError, match=r"grammars of requests under way take .* try again later"):
            grammars.regex("d")
        assert len(grammars._kept) == 2  # none has left for one that has not come
        followed.clear()
        assert grammars.regex("d").start()
        assert len(grammars._all) == 2


def test_those_that_nobody_follows_leave_before_one_is_refused(scribe: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with compiler_of_large_ones(scribe, monkeypatch, most_kept=450) as grammars:
        followed = [grammars.regex(pattern).start() for pattern in "ab"]
        unused = weakref.ref(grammars.regex("c"))
        grammars.regex("d")
        assert unused() is None
        assert len(grammars._kept) == 3
        assert len(followed) == 2


def test_the_oldest_grammar_is_forgotten(scribe: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_MAX_KEPT", 2)
    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars:
        first, second = grammars.regex("a"), grammars.regex("b")
        assert grammars.regex("a") is first
        grammars.regex("c")
        assert grammars.regex("a") is first
        assert grammars.regex("b") is not second


def test_a_new_grammar_can_be_compiled_later(scribe: Engine) -> None:
    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars:
        grammars.compiles_at_once = False
        with pytest.raises(NewGrammarError) as new:
            grammars.regex("a")
        found = new.value.compile()
        assert new.value.compile() is grammars.regex("a") is found


def test_nobody_waits_at_the_door_while_the_first_grammar_prepares_the_vocabulary(
    scribe: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes requests asks for grammars as well, and takes those that need none meanwhile."""
    has_begun, may_end = threading.Event(), threading.Event()

    def read(library: Any, vocabulary: Any) -> Any:
        has_begun.set()
        assert may_end.wait(60)
        return read_vocabulary(library, vocabulary)

    monkeypatch.setattr("trireme.llm.grammar.compiler.read_vocabulary", read)
    with closing(GrammarCompiler(scribe.tokenizer, sorted(scribe.end_ids))) as grammars, ThreadPoolExecutor(2) as pool:
        grammars.compiles_at_once = False
        with pytest.raises(NewGrammarError) as new:
            grammars.regex("a")
        first = pool.submit(new.value.compile)
        assert has_begun.wait(60)
        asked = pool.submit(grammars.regex, "b")
        try:
            assert isinstance(asked.exception(timeout=10), NewGrammarError)
        finally:
            may_end.set()
        assert first.result(60) is grammars.regex("a")


@pytest.mark.parametrize("count", [3, 2500, MAX_CHOICES])
def test_as_many_texts_as_are_taken_can_be_followed_to_their_ends(scribe: Engine, count: int) -> None:
    texts = [f"{number}{'!' * (number % 3)} is one" for number in range(count - 2)] + ["0", "0!"]
    state = scribe.grammars.choice(texts).start()
    encoded = scribe.tokenizer.encode(texts[-3], add_special=False)
    for token in encoded:
        assert as_mask(state.allowed(4096), 4096)[token], state.error
        state.advance(token)
        assert not state.error
    assert state.is_finished
    ends = scribe.grammars.choice(texts).start()
    for token in scribe.tokenizer.encode("0", add_special=False):
        ends.advance(token)
    assert any(as_mask(ends.allowed(4096), 4096)[end] for end in scribe.end_ids)  # here one text ends, and others go on
    assert not ends.is_finished


def test_without_the_package_the_request_hears_what_to_install(scribe: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(SamplingError, match="pip install llguidance, or the server with its extra 'llm'"):
        scribe.grammars.regex("never seen before")


def test_a_vocabulary_without_an_end_can_be_used(scribe: Engine) -> None:
    with closing(GrammarCompiler(scribe.tokenizer, ())) as grammars:
        state = grammars.regex("ab?").start()
    state.advance(scribe.tokenizer.encode("a", add_special=False)[0])
    assert [scribe.tokenizer.token_text(token) for token in as_mask(state.allowed(4096), 4096).nonzero()[0]] == ["b"]


def test_the_reason_comes_without_lines_of_the_grammar(scribe: Engine) -> None:
    with pytest.raises(SamplingError, match=r'^.guided_grammar. cannot be compiled: at 2\(4\): unknown name: "zz"$'):
        scribe.grammars.notation('start: a "x"\na: zz')


def test_copies_know_what_may_come_first(scribe: Engine) -> None:
    """Each answer has one, and where there are many names it takes long: told by the processor's time."""
    library = load_library()
    vocabulary = read_vocabulary(library, Vocabulary(scribe.tokenizer, scribe.end_ids))
    names = [f"p{number}" for number in range(1500)]
    source = json_source({"properties": dict.fromkeys(names, True), "required": names})

    def first_mask_s(matcher: Any) -> tuple[bytes, float]:
        copied = matcher.deep_copy()
        began_s = time.thread_time()
        return copied.compute_bitmask(), time.thread_time() - began_s

    matcher, reason = compiled(library, vocabulary, source)
    assert reason == ""
    anew, anew_s = first_mask_s(library.LLMatcher(vocabulary, source, log_level=0))
    assert [first_mask_s(matcher)[0] for _ in range(3)] == [anew] * 3
    assert min(first_mask_s(matcher)[1] for _ in range(5)) < anew_s / 10
    followed = scribe.grammars.json_schema(json.loads(source)["grammars"][0]["json_schema"])
    assert min(first_mask_s(followed.start().matcher)[1] for _ in range(5)) < anew_s / 10
