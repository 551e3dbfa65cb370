"""Slow grammars slow themselves down, and not everybody."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from trireme.llm import Engine, SamplingParams
from trireme.llm.grammar import mask_turns
from trireme.llm.grammar.mask_turns import MaskTurns
from trireme.llm.grammar.matching import CompiledGrammar, GrammarTimeBudget
from trireme.llm.grammar.token_bits import TokenBits, every_token
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence


class SteppingClock:
    """Goes on whenever it is looked at, by steps of nothing at first."""

    now_s = step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class Slow:
    """The state of a grammar whose masks take so long by that clock."""

    is_finished = False
    error = ""

    def __init__(self, clock: SteppingClock, takes_s: float, cost_s: float = 0.02, advance_s: float = 0.0) -> None:
        self._clock, self._takes_s, self.cost_s, self.advance_s = clock, takes_s, cost_s, advance_s
        self.later_cost_s = cost_s

    def allowed(self, vocab_size: int) -> TokenBits:
        if self._takes_s < 0:
            raise ZeroDivisionError("no mask today")
        self._clock.now_s += self._takes_s
        return every_token(vocab_size)

    def advance(self, token: int) -> None:
        pass


def sequence(number: int, grammar: Any, last_token: float = 0.0) -> Sequence:
    keys = BlockKeys(4)
    return Sequence(
        number, [1] * 9, 3, SamplingParams(), lambda output: None, keys, 100, grammar=grammar, last_token=last_token
    )


def left_out(*running: Sequence, clock: SteppingClock, chooses_later: bool = False) -> list[int]:
    MaskTurns(8, chooses_later, clock).prepare(running)
    return [number for number, one in enumerate(running) if one.awaits_mask]


def test_slow_grammars_have_a_part_of_each_step_and_quick_ones_are_left_to_it() -> None:
    clock = SteppingClock()
    slow = [sequence(number, Slow(clock, 0.02, 0.02)) for number in range(10)]
    quick = [sequence(100 + number, Slow(clock, 0.001, 0.001)) for number in range(40)]
    assert left_out(*slow, *quick, clock=clock) == list(range(3, 10))
    assert clock.now_s == pytest.approx(3 * 0.02)


def test_quick_ones_have_a_part_as_well_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_turns, "THREADS", 4)
    clock = SteppingClock()
    running = [sequence(number, Slow(clock, 0.001, 2**-9), -number) for number in range(256)]
    assert left_out(*running, clock=clock) == list(range(256 - 103))  # the last ones have waited longest
    assert clock.now_s == 0.0


def test_masks_of_slow_ones_that_turn_out_to_be_quick_are_counted_as_they_are() -> None:
    clock = SteppingClock()
    running = [sequence(number, Slow(clock, 2**-10, 0.02)) for number in range(60)]
    assert left_out(*running, clock=clock) == list(range(52, 60))


def test_what_it_takes_to_hear_of_tokens_counts_as_masks_do() -> None:
    clock = SteppingClock()
    slow = [sequence(number, Slow(clock, 0.0, 0.0, 0.02)) for number in range(10)]
    quick = [sequence(100 + number, Slow(clock, 0.0, 0.0, 2**-9)) for number in range(40)]
    assert left_out(*slow, *quick, clock=clock) == [*range(3, 10), *range(10 + 26, 50)]


def test_tokens_that_take_long_are_waited_for_by_turns(start_random: Callable[..., Engine]) -> None:
    """Of rules that a text fits in many ways, with each token more: to hear of one takes long, and the masks do."""
    engine, clock = start_random(), SteppingClock()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    compiled = CompiledGrammar(engine.grammars.regex("a+").start().matcher, "guided_regex", GrammarTimeBudget(), clock)
    running = [sequence(number, compiled.start()) for number in range(4)]
    clock.step_s = 0.03
    running[0].grammar.advance(token)
    clock.step_s = 0.0
    assert [one.grammar.advance_s for one in running] == [pytest.approx(0.03)] * 4
    assert left_out(*running, clock=clock) == [2, 3]
    for number in range(1, 40):
        running[0].grammar.advance(token)
        assert compiled.advance_s == pytest.approx(0.03 * 0.9**number)
    assert left_out(*running, clock=clock) == []


def test_one_that_has_its_mask_is_left_out_of_no_step(start_random: Callable[..., Engine]) -> None:
    clock = SteppingClock()
    ready = start_random().grammars.regex("[a-z]+").start()
    ready.advance(start_random().tokenizer.encode("a", add_special=False)[0])
    ready.grammar.cost_s = 0.02
    assert ready.cost_s == 0.02
    ready.allowed(1)
    slow = [sequence(number, Slow(clock, 0.1), last_token=1.0) for number in range(3)]
    assert left_out(sequence(9, ready, last_token=9.0), *slow, clock=clock) == [2, 3]


def test_who_comes_first_by_priority_has_the_first_turn() -> None:
    clock = SteppingClock()
    early, late = sequence(1, Slow(clock, 0.1), 1.0), sequence(2, Slow(clock, 0.1), 2.0)
    early.priority = 1
    assert left_out(early, late, clock=clock) == [0]


def test_what_a_mask_costs_rises_at_once_and_falls_with_every_mask(start_random: Callable[..., Engine]) -> None:
    engine, clock = start_random(), SteppingClock()
    token = engine.tokenizer.encode("a", add_special=False)[0]
    compiled = CompiledGrammar(engine.grammars.regex("a+").start().matcher, "guided_regex", GrammarTimeBudget(), clock)
    state = compiled.start()
    assert state.cost_s == 0.0
    clock.step_s = 0.02
    state.allowed(1)
    assert state.cost_s == 0.0  # it is made
    assert compiled.cost_s == pytest.approx(0.02)
    clock.step_s = 0.0
    for number in range(1, 20):
        for _ in range(10):  # of other sequences
            compiled.advance(compiled.start().matcher, token)
        assert compiled.cost_s == pytest.approx(0.02 * 0.9 ** (number - 1))
        state.advance(token)
        assert state.cost_s == compiled.cost_s
        state.allowed(1)


def test_at_least_one_is_in_the_next_step_however_slow_it_is() -> None:
    clock = SteppingClock()
    assert left_out(*(sequence(number, Slow(clock, 5.0)) for number in range(4)), clock=clock) == [1, 2, 3]


def test_who_has_waited_longest_comes_first() -> None:
    clock = SteppingClock()
    running = [sequence(number, Slow(clock, 0.04, 0.04), last) for number, last in enumerate([4.0, 1.0, 3.0, 2.0])]
    assert left_out(*running, clock=clock) == [0, 2]
    running[1].last_token = running[3].last_token = 5.0
    assert left_out(*running, clock=clock) == [1, 3]


def test_those_without_a_grammar_or_with_a_token_under_way_are_left_alone() -> None:
    clock = SteppingClock()
    free, under_way = sequence(1, None), sequence(2, Slow(clock, 5.0))
    under_way.pending = 1
    assert left_out(free, under_way, sequence(3, Slow(clock, 0.1)), clock=clock) == []
    assert clock.now_s == 0.1


def test_quick_ones_with_a_token_under_way_are_in_the_next_step_where_tokens_are_chosen_later() -> None:
    clock = SteppingClock()
    quick = [sequence(number, Slow(clock, 0.001, 0.001)) for number in range(3)]
    slow, unknown = sequence(3, Slow(clock, 0.02, 0.02)), sequence(4, Slow(clock, 0.02, math.inf))
    for one in (running := [*quick, slow, unknown]):
        one.pending = 1
    assert left_out(*running, clock=clock, chooses_later=True) == []
    assert [one.may_have_slow_grammar for one in running] == [False] * 3 + [True] * 2
    assert clock.now_s == 0.0  # no mask is made before that token is known


def test_their_part_of_a_step_counts_those_with_a_token_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_turns, "THREADS", 4)
    clock = SteppingClock()
    running = [sequence(number, Slow(clock, 0.001, 2**-9), -number) for number in range(256)]
    for one in running:
        one.pending = 1
    assert left_out(*running, clock=clock, chooses_later=True) == list(range(256 - 103))


def test_one_that_fails_is_in_the_step_that_tells_its_client() -> None:
    broken = sequence(1, Slow(SteppingClock(), -1.0))
    assert left_out(broken, clock=SteppingClock()) == []
    assert "ZeroDivisionError: no mask today" in broken.error


@pytest.mark.parametrize("blocks", [400, 48])
def test_texts_are_the_same_where_each_step_has_time_for_one_mask(
    start_random: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    def texts(engine: Engine) -> list[str]:
        grammar = engine.grammars.regex("([a-z]{3,9} ){20,30}x")
        params = SamplingParams(temperature=1.0, seed=11, max_tokens=180, grammar=grammar, choices=2)
        return [answer.text for answer in engine.generate([[5 + number, 9, 3] for number in range(3)], params)]

    wanted = texts(start_random())
    monkeypatch.setattr(mask_turns, "QUICK_S", -1.0)
    monkeypatch.setattr(mask_turns, "_STEP_S", 1e-9)
    engine = start_random(blocks=blocks)
    assert texts(engine) == wanted
    assert (engine.core.stats().preemptions > 0) == (blocks == 48)
