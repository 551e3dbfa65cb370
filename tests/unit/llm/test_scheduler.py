"""The scheduler and the block pool: no block is lost or given twice, whatever comes, stops and goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.llm.beams.group import BeamGroup
from trireme.llm.block_pool import BlockPool
from trireme.llm.prefix_cache import BlockKeys, find_prefix
from trireme.llm.request import FinishReason, Sequence, TokenLogprobs
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import SchedulerLimits, StepPlan

BLOCK = 4


def limits(blocks: int = 16, sequences: int = 4, tokens: int = 16, has_prefix_cache: bool = True) -> SchedulerLimits:
    return SchedulerLimits(BLOCK, blocks, sequences, tokens, has_prefix_cache)


def sequence(number: int, prompt: list[int], wanted: int = 8, **params: object) -> Sequence:
    return Sequence(
        number,
        list(prompt),
        len(prompt),
        SamplingParams(**params),  # type: ignore[arg-type]
        lambda output: None,
        BlockKeys(BLOCK),
        len(prompt) + wanted,
    )


def run(scheduler: Scheduler, plan: StepPlan, token: Callable[[Sequence], int] = lambda sequence: 7) -> None:
    """Settles a step and ends what has all its tokens."""
    for chunk in plan.chunks:
        alive = scheduler.settle(chunk, [token(chunk.sequence)] if chunk.samples else ())
        if alive and len(chunk.sequence.tokens) >= chunk.sequence.max_size:
            scheduler.finish(chunk.sequence, FinishReason.LENGTH)


def test_a_prompt_longer_than_a_step_is_computed_in_chunks_beside_others() -> None:
    scheduler = Scheduler(limits(tokens=8))
    short, long = sequence(1, [1, 2]), sequence(2, list(range(20)))
    scheduler.add(short)
    scheduler.add(long)
    seen = []
    for _ in range(4):
        plan = scheduler.schedule()
        assert plan is not None
        assert plan.token_count <= 8
        seen.append([(chunk.sequence.sequence_id, chunk.start, chunk.count, chunk.samples) for chunk in plan.chunks])
        run(scheduler, plan)
    assert seen[0] == [(1, 0, 2, True), (2, 0, 6, False)]
    assert seen[1] == [(1, 2, 1, True), (2, 6, 7, False)]
    assert seen[2] == [(1, 3, 1, True), (2, 13, 7, True)]


def test_a_step_is_planned_before_the_token_of_the_one_before_is_known() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(sequence(1, [1, 2, 3]))
    first = scheduler.schedule()
    second = scheduler.schedule()
    assert first is not None
    assert second is not None
    (chunk,) = second.chunks
    assert (chunk.start, chunk.count, chunk.is_pending, chunk.samples) == (3, 1, True, True)
    run(scheduler, first)
    run(scheduler, second)
    assert chunk.sequence.tokens == [1, 2, 3, 7, 7]


def test_a_sequence_whose_choice_depends_on_its_last_token_waits_for_it() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(sequence(1, [1, 2, 3], repetition_penalty=1.5))
    first = scheduler.schedule()
    assert first is not None
    assert scheduler.schedule() is None
    run(scheduler, first)
    assert scheduler.schedule() is not None


@pytest.mark.parametrize(
    ("waiting", "others", "is_awaited"), [(1, 0, True), (2, 2, True), (1, 2, False), (0, 3, False)]
)
def test_a_step_is_awaited_where_half_of_all_can_go_on_only_behind_it(
    waiting: int, others: int, is_awaited: bool
) -> None:
    scheduler = Scheduler(limits(64, sequences=8))
    for number in range(waiting):
        scheduler.add(sequence(number, [1, 2, 3], repetition_penalty=1.5))
    for number in range(others):
        scheduler.add(sequence(10 + number, [1, 2, 3]))
    plan = scheduler.schedule()
    assert plan is not None
    assert plan.is_awaited == is_awaited


def test_a_step_that_is_not_the_last_of_a_prompt_is_not_awaited() -> None:
    scheduler = Scheduler(limits(tokens=2))
    scheduler.add(sequence(1, [1, 2, 3], repetition_penalty=1.5))
    plans = [scheduler.schedule() for _ in range(2)]
    assert [plan is not None and plan.is_awaited for plan in plans] == [False, True]


def test_no_token_beyond_the_last_is_planned() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(sequence(1, [1, 2, 3], wanted=2))
    plans = [scheduler.schedule() for _ in range(3)]
    assert [plan is not None for plan in plans] == [True, True, False]


def test_a_known_prefix_is_not_computed_again() -> None:
    scheduler = Scheduler(limits())
    prompt = list(range(11))
    scheduler.add(first := sequence(1, prompt))
    while (plan := scheduler.schedule()) is not None:
        run(scheduler, plan)
    assert first.is_finished
    scheduler.add(second := sequence(2, prompt))
    plan = scheduler.schedule()
    assert plan is not None
    assert [(chunk.start, chunk.count) for chunk in plan.chunks] == [(8, 3)]
    assert second.cached == 8
    scheduler.add(other := sequence(3, [99, *prompt[1:]]))
    scheduler.schedule()
    assert other.cached == 0


def test_a_sequence_gives_up_its_blocks_and_comes_back_with_all_its_tokens() -> None:
    scheduler = Scheduler(limits(blocks=5, has_prefix_cache=False))
    old, young = sequence(1, [1] * 7, wanted=8), sequence(2, [2] * 7, wanted=8)
    scheduler.add(old)
    scheduler.add(young)
    for _ in range(100):
        plan = scheduler.schedule()
        if plan is None:
            break
        run(scheduler, plan)
    assert scheduler.stats.preemptions >= 1
    assert (len(old.tokens), len(young.tokens)) == (15, 15)
    assert scheduler.pool.free_count == 5


def test_a_prompt_that_is_thrown_out_before_its_first_token_counts_once_and_not_as_cached() -> None:
    scheduler = Scheduler(limits(blocks=5, tokens=5))
    first, second = sequence(1, [1, 2, 3, 4], 6), sequence(2, list(range(20, 36)), 2)
    scheduler.add(first)
    scheduler.add(second)
    while (plan := scheduler.schedule()) is not None:
        run(scheduler, plan)
    assert scheduler.stats.preemptions > 0
    assert second.output_count == 2
    assert second.cached == 0
    assert scheduler.stats.prompt_tokens == 4 + 16


def test_a_prompt_of_several_steps_waits_until_there_is_room_for_all_of_it() -> None:
    scheduler = Scheduler(limits(blocks=8, tokens=8))
    old, long = sequence(1, [1] * 12, wanted=8), sequence(2, list(range(24)), wanted=2)
    scheduler.add(old)
    scheduler.add(long)
    computed = 0
    while (plan := scheduler.schedule()) is not None:
        computed += plan.token_count
        run(scheduler, plan)
    assert (old.output_count, long.output_count) == (8, 2)
    assert scheduler.stats.preemptions == 0
    assert computed == 12 + 7 + 24 + 1


def test_the_longest_unused_prefix_is_forgotten_first() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2) or []
    pool.remember(first, b"first")
    pool.remember(second, b"second")
    pool.release([first])
    pool.release([second])
    assert find_prefix(pool, [b"first"]) == [first]
    assert pool.allocate(1) == [first]
    assert pool.find(b"first") is None
    assert pool.find(b"second") == second
    assert pool.allocate(2) is None


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    blocks=st.integers(6, 24),
    sequences=st.integers(1, 6),
    tokens=st.integers(2, 24),
    has_prefix_cache=st.booleans(),
    depth=st.integers(0, 1),
)
def test_whatever_comes_and_goes_no_block_is_lost_or_shared_by_mistake(
    seed: int, blocks: int, sequences: int, tokens: int, has_prefix_cache: bool, depth: int
) -> None:
    chance = random.Random(seed)
    scheduler = Scheduler(limits(blocks, sequences, tokens, has_prefix_cache))
    room = blocks * BLOCK
    everybody, flights = [], []
    for number in range(30):
        prompt = [chance.randrange(3) for _ in range(chance.randrange(1, room - 2))]
        one = sequence(number, prompt, wanted=min(room - len(prompt), chance.randrange(1, 12)))
        everybody.append(one)
        scheduler.add(one)
    for _ in range(3000):
        plan = scheduler.schedule()
        alive = [one for one in everybody if not one.is_finished]
        assert scheduler.running_count + scheduler.waiting_count == len(alive) == len(list(scheduler.sequences()))
        if plan is not None:
            check_plan(scheduler, plan)
            flights.append(plan)
        while flights and (plan is None or len(flights) > depth):
            run(scheduler, flights.pop(0), lambda one: chance.randrange(3))
        if chance.random() < 0.05:
            scheduler.finish(chance.choice(everybody), FinishReason.CANCELLED)
        if not scheduler.has_work and not flights:
            break
    assert all(one.is_finished for one in everybody)
    assert scheduler.pool.free_count == blocks


def check_plan(scheduler: Scheduler, plan: StepPlan) -> None:
    assert plan.token_count == sum(chunk.count for chunk in plan.chunks) <= scheduler.limits.max_step_tokens
    slots = [chunk.sequence.slot for chunk in plan.chunks]
    assert len(set(slots)) == len(slots)
    assert min(slots) >= 0
    writers: dict[int, int] = {}
    for chunk in plan.chunks:
        one = chunk.sequence
        assert len(one.blocks) * BLOCK >= chunk.start + chunk.count
        assert one.size <= one.max_size
        for position in range(chunk.start, chunk.start + chunk.count):
            block = one.blocks[position // BLOCK]
            assert writers.setdefault(block, one.sequence_id) == one.sequence_id


def test_a_sequence_that_becomes_long_is_computed_anew_and_shares_no_blocks_with_short_ones() -> None:
    scheduler = Scheduler(replace(limits(), short_positions=10))
    first = sequence(1, list(range(9)), wanted=6)
    scheduler.add(first)
    seen = []
    while (plan := scheduler.schedule()) is not None:
        seen += [(chunk.start, chunk.count, chunk.sequence.is_long) for chunk in plan.chunks]
        run(scheduler, plan)
    assert seen == [(0, 9, False), (9, 1, False), (0, 11, True), (11, 1, True), (12, 1, True), (13, 1, True)]
    assert scheduler.stats.preemptions == 0
    assert scheduler.pool.free_count == 16

    known = find_prefix(scheduler.pool, BlockKeys(BLOCK).up_to(list(range(9)), 2))
    again = sequence(2, [*range(9), 7, 7], wanted=6)
    scheduler.add(again)
    assert again.is_long
    plan = scheduler.schedule()
    assert plan is not None
    assert plan.chunks[0].start == 8
    assert not set(again.blocks) & set(known)


def test_a_token_that_makes_its_sequence_long_is_waited_for() -> None:
    scheduler = Scheduler(replace(limits(), short_positions=5))
    one = sequence(1, list(range(4)), wanted=6)
    scheduler.add(one)
    plans = [scheduler.schedule(), scheduler.schedule()]
    assert [plan.chunks[0].start for plan in plans if plan is not None] == [0, 4]
    assert one.size == 6
    assert scheduler.schedule() is None
    for plan in plans:
        assert plan is not None
        run(scheduler, plan)
    plan = scheduler.schedule()
    assert plan is not None
    assert [(chunk.start, chunk.count, chunk.sequence.is_long) for chunk in plan.chunks] == [(0, 6, True)]


def test_those_that_end_while_they_wait_are_not_counted() -> None:
    scheduler = Scheduler(limits(sequences=1))
    waiting = [sequence(number, [1, 2, 3]) for number in range(1000)]
    for one in waiting:
        scheduler.add(one)
    for one in waiting[:-1]:
        scheduler.finish(one, FinishReason.CANCELLED)
    assert (scheduler.waiting_count, list(scheduler.sequences())) == (1, waiting[-1:])
    plan = scheduler.schedule()
    assert plan is not None
    assert [chunk.sequence for chunk in plan.chunks] == waiting[-1:]
    scheduler.finish(waiting[-1], FinishReason.CANCELLED)
    assert not scheduler.has_work


def test_keys_of_one_prompt_are_shared_until_its_sequences_part() -> None:
    prompt = list(range(9))
    first = BlockKeys(BLOCK)
    made = first.up_to(prompt, 2)
    second = first.copy()
    assert all(own is other for own, other in zip(made, second.up_to(prompt, 2), strict=True))
    assert second.up_to([*prompt, 1, 1, 1], 3) != first.up_to([*prompt, 2, 2, 2], 3)
    assert first.up_to([*prompt, 2, 2, 2], 3) == BlockKeys(BLOCK).up_to([*prompt, 2, 2, 2], 3)


def test_what_a_step_brings_for_beams_that_were_thrown_out_meanwhile_is_left() -> None:
    scheduler = Scheduler(limits(blocks=2, sequences=3))
    older, leader = sequence(1, [1, 2, 3], wanted=5), sequence(2, [4, 5], beams=2)
    beams = BeamGroup(leader, [lambda output: None])
    scheduler.add(older)
    scheduler.add(leader)
    first = scheduler.schedule()
    assert first is not None
    for chunk in first.chunks:
        if chunk.sequence is older:
            scheduler.settle(chunk, [7])
    second = scheduler.schedule()  # the older one grows into its second block, and the beams lose theirs
    third = scheduler.schedule()
    assert second is not None
    assert third is not None
    assert leader.slot < 0
    (chunk,) = [chunk for chunk in first.chunks if chunk.sequence is leader]
    scheduler.settle(chunk)
    report = TokenLogprobs(-0.5, 0, ((8, -0.5), (9, -0.9), (10, -1.2), (11, -1.5)))
    assert beams.take(leader, chunk.admission, report, scheduler) is None
    assert leader.tokens == [4, 5]
