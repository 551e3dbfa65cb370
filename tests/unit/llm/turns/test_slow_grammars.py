"""A request does not wait for long behind those whose grammars are slow, however many of them there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tiny_language_models import TinyModel
from waiting import until

from trireme.llm.grammar.mask_turns import MaskTurns
from trireme.llm.grammar.token_bits import TokenBits, every_token
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Sequence, SequenceOutput
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import SchedulerLimits


class Clock:
    """Goes on when a mask is made."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow:
    """A grammar, and the state of each that follows it: each of its masks takes more than a step has for all."""

    is_finished = False
    error = ""
    advance_s = 0.0
    later_cost_s = 1.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mask: TokenBits | None = None

    def start(self) -> Slow:
        return Slow(self._clock)

    @property
    def cost_s(self) -> float:
        return 0.06 if self._mask is None else 0.0

    def allowed(self, vocab_size: int) -> TokenBits:
        if self._mask is None:
            self._clock.now_s += 0.06
            self._mask = every_token(vocab_size)
        return self._mask

    def advance(self, token: int) -> None:
        self._mask = None


class Ended:
    """When the sequences have ended, and what they wrote."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.tokens: dict[str, list[int]] = {}
        self.at_s: dict[str, float] = {}

    def listener(self, name: str) -> Callable[[SequenceOutput], None]:
        def hear(output: SequenceOutput) -> None:
            self.tokens.setdefault(name, []).extend(output.token_ids)
            if output.finish_reason is not None:
                assert output.error == ""
                self.at_s[name] = self._clock.now_s

        return hear


def run(start: Callable[[], Any], newcomers: int) -> Ended:
    """Four slow ones take all four slots; so many others come when they have them."""
    clock, engine = Clock(), start()
    ended = Ended(clock)
    engine.core._mask_turns = MaskTurns(engine.core.spec.vocab_size, clock=clock)
    with engine.held():
        for number in range(4):
            params = SamplingParams(max_tokens=40, ignores_eos=True, temperature=1.0, seed=number, grammar=Slow(clock))
            engine.core.submit([5, 9, number], params, ended.listener(f"slow {number}"))
    until(lambda: all(len(ended.tokens.get(f"slow {number}", ())) >= 3 for number in range(4)))
    ended.at_s["come"] = clock.now_s
    for number in range(newcomers):
        params = SamplingParams(max_tokens=10, ignores_eos=True, temperature=1.0, seed=number)
        engine.core.submit([7, 8, number], params, ended.listener(f"quick {number}"))
    until(lambda: len(ended.at_s) == 5 + newcomers)
    return ended


@pytest.mark.parametrize("kind", [{}, {"kind": "ahead"}], ids=["usual", "ahead"])
def test_newcomers_wait_for_some_steps_and_slow_ones_write_what_they_would_have_written(
    tiny_model: Callable[[str], TinyModel], start_engine: Callable[..., Any], kind: dict[str, str]
) -> None:
    def start() -> Any:
        return start_engine(tiny_model("llama").folder, max_sequences=4, blocks=200, **kind)

    alone = run(start, newcomers=0)
    found = run(start, newcomers=6)
    for number in range(6):
        waited_s = found.at_s[f"quick {number}"] - found.at_s["come"]
        assert waited_s < 0.06 * 80, f"{number} waited for {waited_s:.2f} s"  # slow ones take 0.06 * 4 * 40
    for number in range(4):
        assert found.tokens[f"slow {number}"] == alone.tokens[f"slow {number}"]


def sequence(number: int, is_slow: bool = False, priority: int = 0) -> Sequence:
    one = Sequence(number, [number] * 5, 5, SamplingParams(), lambda output: None, BlockKeys(4), 200, priority=priority)
    one.takes_turns = one.awaits_mask = is_slow
    one.last_token = float(number)
    return one


def step(scheduler: Scheduler, *slow: Sequence) -> set[int]:
    """The numbers of those that run, of which some are left out of the step."""
    for one in scheduler.running:
        one.takes_turns = one.awaits_mask = one in slow
    plan = scheduler.schedule()
    for chunk in plan.chunks if plan is not None else ():
        scheduler.settle(chunk, [7] if chunk.samples else ())
    return {one.sequence_id for one in scheduler.running}


def begun(*slow: Sequence, slots: int = 4, blocks: int = 1000) -> Scheduler:
    scheduler = Scheduler(SchedulerLimits(4, blocks, slots, 4096))
    for one in slow:
        scheduler.add(one)
    assert step(scheduler) == {one.sequence_id for one in slow}
    return scheduler


def test_they_give_half_of_the_slots_to_others_and_get_them_back_when_nobody_waits() -> None:
    slow = [sequence(number) for number in range(1, 5)]
    scheduler, others = begun(*slow), [sequence(number) for number in range(11, 15)]
    for one in others:
        scheduler.add(one)
    assert step(scheduler, *slow) == {1, 2, 3, 11}  # the fourth has had its turn last
    assert step(scheduler, *slow) == {1, 2, 11, 12}
    assert step(scheduler, *slow) == {1, 2, 11, 12}
    assert (scheduler.waiting_count, scheduler.stats.preemptions) == (4, 2)
    assert {one.sequence_id for one in scheduler.sequences()} == {1, 2, 3, 4, 11, 12, 13, 14}
    scheduler.finish(others[0], FinishReason.LENGTH)
    assert step(scheduler, *slow) == {1, 2, 12, 13}  # two that are slow run already
    scheduler.finish(slow[0], FinishReason.LENGTH)
    assert step(scheduler, *slow) == {2, 3, 12, 13}
    for one in others[1:]:
        scheduler.finish(one, FinishReason.LENGTH)
    assert step(scheduler, *slow) == {2, 3, 4}
    scheduler.finish(slow[2], FinishReason.CANCELLED)
    assert scheduler.has_work


def test_one_that_waits_beside_the_line_can_be_ended() -> None:
    slow = [sequence(number) for number in range(1, 5)]
    scheduler = begun(*slow)
    scheduler.add(sequence(11))
    assert step(scheduler, *slow) == {1, 2, 3, 11}
    scheduler.finish(slow[3], FinishReason.CANCELLED)
    assert scheduler.waiting_count == 0
    for one in list(scheduler.sequences()):
        scheduler.finish(one, FinishReason.CANCELLED)
    assert not scheduler.has_work
    assert scheduler.pool.free_count == 1000


def test_they_give_blocks_as_well_as_slots() -> None:
    slow, large = [sequence(number) for number in range(1, 5)], sequence(11)
    scheduler = begun(*slow, slots=6, blocks=10)  # each has two
    large.tokens += [3] * 6
    scheduler.add(large)
    assert step(scheduler) == {1, 2, 3, 4}
    assert step(scheduler, *slow) == {1, 2, 3, 11}


def test_nobody_goes_for_one_that_is_less_important_or_slow_itself() -> None:
    slow = [sequence(number) for number in range(1, 5)]
    scheduler = begun(*slow)
    scheduler.add(sequence(11, priority=1))
    assert step(scheduler, *slow) == {1, 2, 3, 4}
    scheduler = begun(*(slow := [sequence(number) for number in range(1, 5)]))
    scheduler.add(sequence(12, is_slow=True))
    assert step(scheduler, *slow) == {1, 2, 3, 4}


def test_nobody_goes_for_one_that_cannot_begin_before_its_token_is_known() -> None:
    scheduler, newcomer = begun(*(slow := [sequence(number) for number in range(1, 5)])), sequence(11)
    newcomer.pending = 1  # it was thrown out meanwhile
    scheduler.add(newcomer)
    assert step(scheduler, *slow) == {1, 2, 3, 4}
    newcomer.pending = 0
    assert step(scheduler, *slow) == {1, 2, 3, 11}


def beams(first: int, count: int) -> list[Sequence]:
    """Those of a search, which can only begin together."""
    found = [sequence(first + number) for number in range(count)]
    for one in found:
        one.peers = found
    return found


def test_as_many_go_as_beams_need_slots() -> None:
    slow, search = [sequence(number) for number in range(1, 5)], beams(11, 2)
    scheduler = begun(*slow)
    scheduler.add(search[0])
    assert step(scheduler, *slow) == {1, 2, 3}
    assert step(scheduler, *slow) == {1, 2, 11, 12}


def test_nobody_goes_for_beams_that_would_not_find_room_for_all_that() -> None:
    slow, search = [sequence(number) for number in range(1, 5)], beams(11, 3)
    scheduler = begun(*slow)
    scheduler.add(search[0])
    for _ in range(2):
        assert step(scheduler, *slow) == {1, 2, 3, 4}
    scheduler.finish(slow[0], FinishReason.LENGTH)
    assert step(scheduler, *slow) == {2, 3, 4}
    scheduler.finish(slow[1], FinishReason.LENGTH)
    assert step(scheduler, *slow) == {3, 4}
    scheduler.finish(slow[2], FinishReason.LENGTH)
    assert step(scheduler, *slow) == {4, 11, 12, 13}


def test_those_whose_turn_it_is_and_few_slow_ones_stay() -> None:
    slow = [sequence(number) for number in range(1, 5)]
    scheduler = begun(*slow)
    scheduler.add(sequence(11))
    assert step(scheduler, *slow[:2]) == {1, 2, 3, 4}
    assert step(scheduler) == {1, 2, 3, 4}
