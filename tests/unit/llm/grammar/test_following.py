"""Whatever a model would rather write, what it writes follows the grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trireme.llm import Completion, Engine, EngineOptions, FinishReason, SamplingError, SamplingParams
from trireme.llm.grammar.compiler import GrammarCompiler
from trireme.llm.grammar.matching import CompiledGrammar, GrammarTimeBudget
from trireme.llm.grammar.token_bits import as_mask
from trireme.llm.text_engine import GenerationError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["whale", "ship", None]},
        "size": {"type": "integer", "minimum": -5, "maximum": 120},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
        "is_new": {"type": "boolean"},
    },
    "required": ["kind", "size", "names"],
    "additionalProperties": False,
}


def assert_fits_schema(text: str) -> None:
    found = json.loads(text)
    assert found.keys() - {"is_new"} == {"kind", "size", "names"}
    assert found["kind"] in ("whale", "ship", None)
    assert isinstance(found["size"], int)
    assert -5 <= found["size"] <= 120
    assert 1 <= len(found["names"]) <= 3
    assert all(isinstance(name, str) and len(name) <= 5 for name in found["names"])
    assert isinstance(found.get("is_new", True), bool)


def written(engine: Engine, grammar: Any, prompts: int = 3, **params: Any) -> list[Completion]:
    chosen = SamplingParams(**{"temperature": 1.0, "max_tokens": 700, "grammar": grammar, **params})
    return engine.generate([[5 + number, 9, 3] for number in range(prompts)], chosen)


@pytest.mark.parametrize("tokenizer", ["own", "tokenizers", "sentencepiece"])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
def test_json_follows_its_schema(start_random: Callable[..., Engine], tokenizer: str, temperature: float) -> None:
    engine = start_random(tokenizer)
    answers = written(engine, engine.grammars.json_schema(SCHEMA), temperature=temperature)
    assert {answer.finish_reason for answer in answers} == {FinishReason.STOP}
    for answer in answers:
        assert_fits_schema(answer.text)


def test_choices_of_one_request_go_their_own_ways(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    answers = written(engine, engine.grammars.json_schema(SCHEMA), prompts=2, choices=4, seed=3)
    assert len({answer.text for answer in answers}) == 8
    for answer in answers:
        assert_fits_schema(answer.text)


def test_sequences_that_gave_way_go_on_where_they_were(start_random: Callable[..., Engine]) -> None:
    roomy, tight = start_random(), start_random(blocks=48)
    params = {"prompts": 6, "seed": 11, "max_tokens": 180}
    pattern = "([a-z]{3,9} ){20,30}x"
    wanted = written(roomy, roomy.grammars.regex(pattern), **params)
    found = written(tight, tight.grammars.regex(pattern), **params)
    assert tight.core.stats().preemptions > 0
    assert [answer.text for answer in found] == [answer.text for answer in wanted]
    for answer in found:
        if answer.finish_reason is FinishReason.STOP:
            assert re.fullmatch(pattern, answer.text)


@pytest.mark.parametrize("pattern", ["(ab|cd){2,5}e", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "[д-я]{3}😀?", "(yes|no)/maybe"])
@pytest.mark.parametrize("tokenizer", ["own", "tokenizers"])
def test_texts_match_a_regular_expression(start_random: Callable[..., Engine], tokenizer: str, pattern: str) -> None:
    engine = start_random(tokenizer)
    for answer in written(engine, engine.grammars.regex(pattern)):
        assert answer.finish_reason is FinishReason.STOP
        assert re.fullmatch(pattern, answer.text), answer.text


@pytest.mark.parametrize("tokenizer", ["own", "tokenizers", "tagged", "sentencepiece"])
def test_names_of_special_tokens_are_written_as_texts(start_random: Callable[..., Engine], tokenizer: str) -> None:
    engine = start_random(tokenizer)
    name = engine.tokenizer.piece_bytes(min(engine.end_ids)).decode()
    fixed = {"type": "object", "properties": {name: {"const": f"x{name}"}}, "additionalProperties": False}
    asked = {
        name: engine.grammars.choice([name]),
        f"ab{name}cd": engine.grammars.choice([f"ab{name}cd"]),
        f"{name}{name} é": engine.grammars.regex(re.escape(f"{name}{name} é")),
        json.dumps({name: f"x{name}"}): engine.grammars.json_schema({**fixed, "required": [name]}),
    }
    for text, grammar in asked.items():
        for answer in written(engine, grammar):
            assert answer.finish_reason is FinishReason.STOP
            assert answer.text.replace('":"', '": "') == text


def test_one_of_some_texts_is_chosen(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    texts = ["red", "green", "dark green", 'say "no"\n']
    found = {answer.text for answer in written(engine, engine.grammars.choice(texts), prompts=30)}
    assert found <= set(texts)
    assert len(found) > 1


@pytest.mark.parametrize(
    "grammar",
    ['start: item ("," item)*\nitem: /[0-9]{1,2}/ | "(" start ")"', 'root ::= "7" | "(" root ")"'],
)
def test_notations_of_grammars_are_followed(start_random: Callable[..., Engine], grammar: str) -> None:
    engine = start_random()
    for answer in written(engine, engine.grammars.notation(grammar), prompts=5, max_tokens=300):
        assert re.fullmatch(r"[0-9,()]*", answer.text)
        if answer.finish_reason is FinishReason.STOP:
            assert answer.text.count("(") == answer.text.count(")")


def test_any_object_is_json(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    ended = [
        answer
        for answer in written(engine, engine.grammars.json_object(), prompts=8)
        if answer.finish_reason is FinishReason.STOP
    ]
    assert ended
    assert all(isinstance(json.loads(answer.text), dict) for answer in ended)


def test_the_end_comes_where_the_grammar_may_stop_and_nowhere_else(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    ends, size = sorted(engine.end_ids), engine.core.spec.vocab_size
    state = engine.grammars.regex("ab+c?").start()
    may_end = []
    for token in [token for char in "abbc" for token in engine.tokenizer.encode(char, add_special=False)]:
        may_end.append([bool(as_mask(state.allowed(size), size)[end]) for end in ends])
        state.advance(token)
    assert may_end == [[False], [False], [True], [True]]
    assert state.is_finished
    assert state.error == ""


def test_tokens_that_no_text_has_never_come(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    size, state = engine.core.spec.vocab_size, engine.grammars.regex(r"(.|\n)+").start()
    mask = as_mask(state.allowed(10_000), 10_000)
    assert mask.size == 10_000
    assert not mask[list(engine.tokenizer.special_ids)].any()
    assert not mask[engine.tokenizer.vocab_size :].any()
    assert mask[:size].sum() > 300


def test_a_grammar_counts_more_than_what_else_is_asked(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    word = tuple(engine.tokenizer.encode("b", add_special=False))
    params = {"min_tokens": 50, "ignores_eos": True, "bad_words": (word,)}
    for answer in written(engine, engine.grammars.choice(["b"]), **params):
        assert (answer.text, answer.finish_reason) == ("b", FinishReason.STOP)


def test_a_token_that_does_not_fit_is_an_error_of_its_sequence(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    state = engine.grammars.choice(["b"]).start()
    state.advance(engine.tokenizer.encode("a", add_special=False)[0])
    assert "doesn't satisfy the grammar" in state.error


def test_one_that_asks_for_what_the_model_cannot_write_says_so(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    state = engine.grammars.choice(["b"]).start()
    (end,) = engine.tokenizer.encode("a", add_special=False)
    assert not state.allowed(end + 1).any()  # as of a model that has no more tokens
    state.advance(end)
    assert state.error == (
        f"'guided_choice' cannot be followed: it asks for tokens that the model, which has {end + 1}, cannot write"
    )


class SteppingClock:
    """Goes on whenever it is looked at."""

    now_s = step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def test_what_sequences_take_counts_for_all_that_follow_the_same(start_random: Callable[..., Engine]) -> None:
    engine, clock = start_random(), SteppingClock()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    slow = CompiledGrammar(
        engine.grammars.regex("a+").start().matcher, "guided_regex", GrammarTimeBudget(lambda: 0.0), clock
    )
    *states, ended = [slow.start() for _ in range(61)]
    for state in (*states, ended):
        state.advance(token)
    ended.advance(min(engine.end_ids))
    clock.step_s = 0.1
    for state in states:  # one step
        state.allowed(1)
    assert clock.now_s == pytest.approx(2 * 2.9)  # the clock is looked at before and after
    assert slow.refusal == "'guided_regex' cannot be followed: it takes too long, 2.9 s for 62 tokens"
    for state in states:
        state.advance(token)
        assert state.error == slow.refusal
    assert ended.is_finished
    assert ended.error == ""
    assert clock.now_s == pytest.approx(2 * 2.9)


def test_one_that_is_quick_enough_may_go_on_for_ever(start_random: Callable[..., Engine]) -> None:
    engine, clock = start_random(), SteppingClock()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    quick = CompiledGrammar(
        engine.grammars.regex("a+").start().matcher, "guided_regex", GrammarTimeBudget(lambda: 0.0), clock
    )
    clock.step_s = 0.009
    state = quick.start()
    for _ in range(1000):
        state.allowed(1)
        state.advance(token)
    assert state.error == ""


def test_slow_ones_share_what_comes_back_with_time() -> None:
    clock = SteppingClock()
    spare = GrammarTimeBudget(clock)
    assert [spare.take(0.9) for _ in range(4)] == [True, True, False, False]
    clock.now_s = 4.0
    assert [spare.take(0.3), spare.take(0.2), spare.take(0.1)] == [True, False, False]
    clock.now_s = 5.0
    assert spare.take(0.09)
    clock.now_s = 1000.0
    assert [spare.take(1.9), spare.take(0.2)] == [True, False]


def test_answers_of_a_slow_one_hold_the_engine_up_no_longer_than_one_does(start_random: Callable[..., Engine]) -> None:
    engine, clock = start_random(), SteppingClock()
    clock.step_s = 0.1
    slow = CompiledGrammar(engine.grammars.regex("[a-z]+").start().matcher, "guided_regex", GrammarTimeBudget(), clock)
    for choices in (30, 1):
        with pytest.raises(GenerationError, match="'guided_regex' cannot be followed: it takes too long"):
            written(engine, slow, prompts=1, choices=choices)
    assert clock.now_s < 2 * 6.0
    assert len(written(engine, None, max_tokens=3)) == 3


@pytest.mark.parametrize(
    ("followers", "mask_s", "is_refused"), [(256, 0.0019, False), (60, 0.005, False), (4, 0.03, True)]
)
def test_many_answers_may_follow_a_grammar_that_one_may_follow(
    start_random: Callable[..., Engine], followers: int, mask_s: float, is_refused: bool
) -> None:
    engine, clock = start_random(), SteppingClock()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    compiled = CompiledGrammar(
        engine.grammars.regex("a+").start().matcher, "guided_regex", GrammarTimeBudget(lambda: 0.0), clock
    )
    states = [compiled.start() for _ in range(followers)]
    for _ in range(100):
        clock.step_s = mask_s
        for state in states:
            state.allowed(1)
        clock.step_s = 0.00001
        for state in states:
            state.advance(token)
    assert bool(compiled.refusal) == is_refused


def test_one_that_was_too_slow_is_refused_for_a_minute(start_random: Callable[..., Engine]) -> None:
    engine, clock = start_random(), SteppingClock()
    compiler = GrammarCompiler(engine.tokenizer, engine.end_ids, clock)
    try:
        slow = compiler.regex("ab+")
        slow.refusal = "'guided_regex' cannot be followed: it takes too long"
        for clock.now_s in (0.0, 59.0):
            with pytest.raises(SamplingError, match="takes too long"):
                compiler.regex("ab+")
        assert compiler.regex("ab*")
        clock.now_s = 61.0
        another = compiler.regex("ab+")
        assert another is not slow
        assert compiler.regex("ab+") is another
    finally:
        compiler.close()


def test_the_shipped_model_fills_in_a_schema(scribe: Engine) -> None:
    prompt = [{"role": "user", "content": "What is the capital of France?"}]
    for choices, temperature in ((1, 0.0), (4, 1.0)):
        params = SamplingParams(
            max_tokens=400,
            temperature=temperature,
            choices=choices,
            seed=1,
            grammar=scribe.grammars.json_schema(SCHEMA, "response_format"),
        )
        for answer in scribe.generate(prompt, params):
            assert_fits_schema(answer.text)


def test_the_shipped_model_picks_a_choice(scribe: Engine) -> None:
    prompt = [{"role": "user", "content": "What is the capital of France?"}]
    grammar = scribe.grammars.choice(["The capital of France is London.", "The capital of France is Paris."])
    (answer,) = scribe.generate(prompt, SamplingParams(max_tokens=40, grammar=grammar))
    assert answer.text == "The capital of France is Paris."


def test_the_torch_executor_follows_as_well(random_folder: Callable[[str], Path]) -> None:
    with Engine.load(random_folder("own"), device="cpu", options=EngineOptions(max_sequences=16)) as engine:
        for answer in written(engine, engine.grammars.json_schema(SCHEMA), choices=2):
            assert_fits_schema(answer.text)


def test_a_grammar_that_becomes_too_large_is_named_with_its_option(scribe: Engine) -> None:
    grammar = scribe.grammars.regex("(a?){500}a{500}")
    with pytest.raises(
        GenerationError, match=r"'guided_regex' cannot be followed: its patterns come to too many states; give"
    ):
        scribe.generate("Once", SamplingParams(grammar=grammar, max_tokens=16))
