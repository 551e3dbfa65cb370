"""Masks that are made together are those that would be made one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trireme.llm import Engine, SamplingParams
from trireme.llm.grammar import mask_batches, matching
from trireme.llm.grammar.mask_batches import make_masks
from trireme.llm.grammar.matching import QUICK_S, CompiledGrammar, GrammarTimeBudget, MatcherState
from trireme.llm.grammar.token_bits import TokenBits
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence

PATTERN = "([a-z]{3,9} ){20,30}x"


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[TokenBits]:
    """Whatever time they take, masks are made together; these are they."""
    found: list[TokenBits] = []
    take = MatcherState.take_mask

    def take_and_keep(state: MatcherState, bits: TokenBits) -> None:
        found.append(bits)
        take(state, bits)

    monkeypatch.setattr(MatcherState, "take_mask", take_and_keep)
    monkeypatch.setattr(matching, "THREADS", 3)
    monkeypatch.setattr(mask_batches, "THREADS", 3)
    monkeypatch.setattr(mask_batches, "_WORTH_S", 0.0)
    monkeypatch.setattr(matching, "QUICK_S", 60.0)
    return found


def sequence(grammar: CompiledGrammar, tokens: int = 0, token: int = 0) -> Sequence:
    state = grammar.start()
    for _ in range(tokens):
        state.allowed(1)
        state.advance(token)
    return Sequence(1, [1] * 9, 3, SamplingParams(), lambda output: None, BlockKeys(4), 100, grammar=state)


@pytest.mark.parametrize("tokenizer", ["own", "tokenizers"])
def test_texts_are_those_of_masks_that_are_made_one_by_one(
    start_random: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, batches: list[TokenBits], tokenizer: str
) -> None:
    def texts(engine: Engine) -> list[str]:
        params = SamplingParams(
            temperature=1.0, seed=11, max_tokens=180, choices=3, grammar=engine.grammars.regex(PATTERN)
        )
        return [answer.text for answer in engine.generate([[5 + number, 9, 3] for number in range(3)], params)]

    together = texts(start_random(tokenizer))
    assert len(batches) > 100
    monkeypatch.setattr(mask_batches, "THREADS", 1)
    del batches[:]
    assert texts(start_random(tokenizer)) == together
    assert not batches


def test_each_sequence_has_its_own(start_random: Callable[..., Engine], batches: list[TokenBits]) -> None:
    engine = start_random()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    grammar = engine.grammars.regex("a{10,12}b")
    running = [sequence(grammar, count, token) for count in range(9, 13)]
    alone = [sequence(grammar, count, token).grammar for count in range(9, 13)]
    make_masks(running)
    assert len(batches) == 4
    size = engine.core.spec.vocab_size
    for one, other in zip(running, alone, strict=True):
        assert one.grammar is not None
        assert other is not None
        assert one.grammar.cost_s == 0.0
        assert one.grammar.allowed(size).tolist() == other.allowed(size).tolist()
    assert len({one.grammar.allowed(size).tobytes() for one in running if one.grammar}) == 3


def test_those_whose_time_is_not_known_are_measured(
    start_random: Callable[..., Engine], batches: list[TokenBits]
) -> None:
    engine = start_random()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    make_masks([sequence(engine.grammars.regex("a+"), 3, token) for _ in range(2)])
    assert not batches


def test_where_all_take_too_long_the_next_ones_are_measured(
    start_random: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, batches: list[TokenBits]
) -> None:
    engine = start_random()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    monkeypatch.setattr(matching, "QUICK_S", QUICK_S)
    grammar = engine.grammars.regex("a+")
    running = [sequence(grammar, 10, token) for _ in range(3)]
    grammar.cost_s = 0.001
    times = iter([0.0, 0.001, 5.0, 5.1])
    make_masks(running, lambda: next(times))
    assert (len(batches), grammar.is_quick) == (3, True)
    for one in running:
        one.advance_grammar(token)
    make_masks(running, lambda: next(times))
    assert (len(batches), grammar.is_quick) == (6, False)
    for one in running:
        one.advance_grammar(token)
    make_masks(running, lambda: next(times))
    assert len(batches) == 6
    running[0].make_mask(1)
    assert grammar.is_quick


def test_many_sequences_follow_several_matchers(start_random: Callable[..., Engine], batches: list[TokenBits]) -> None:
    engine = start_random()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    grammar = engine.grammars.regex("a+")
    alone_bytes = grammar.size_bytes
    states = [grammar.start() for _ in range(4)]
    assert {state.number for state in states} == {0}
    states += [grammar.start() for _ in range(16)]
    assert sorted({state.number for state in states}) == [0, 1, 2]
    assert grammar.size_bytes == 3 * alone_bytes
    for state in states:
        state.allowed(1)
        state.advance(token)
        assert state.allowed(4096).tolist() == states[0].allowed(4096).tolist()
    large = CompiledGrammar(grammar.start().matcher, "guided_regex", GrammarTimeBudget())
    assert {state.number for state in [large.start() for _ in range(40)]} == {0}
