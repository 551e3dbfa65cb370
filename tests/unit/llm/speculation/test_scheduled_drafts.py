"""Steps that verify drafts: what they compute, which blocks they use, and what is left where drafts are wrong."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.llm.prefix_cache import BlockKeys, find_prefix
from trireme.llm.request import FinishReason, Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.speculation.acceptance import verified_tokens
from trireme.llm.step_plan import SchedulerLimits, StepPlan

BLOCK = 4
VOCAB = 5


def sequence(number: int, prompt: list[int], wanted: int = 20, **params: object) -> Sequence:
    made = SamplingParams(**params)  # type: ignore[arg-type]
    return Sequence(
        number, list(prompt), len(prompt), made, lambda output: None, BlockKeys(BLOCK), len(prompt) + wanted
    )


def planned(scheduler: Scheduler) -> StepPlan:
    plan = scheduler.schedule()
    assert plan is not None
    return plan


def next_token(tokens: list[int]) -> int:
    """What the model would write: any function of all that came before."""
    value = 7
    for token in tokens:
        value = (31 * value + token + 1) % 1009
    return value % VOCAB


def run(scheduler: Scheduler, plan: StepPlan) -> None:
    """Settles a step as the engine does, with the model's own token at every place."""
    for chunk in plan.chunks:
        if not chunk.samples:
            scheduler.settle(chunk)
            continue
        one = chunk.sequence
        known = one.tokens[: chunk.start + chunk.count - len(chunk.drafts)]
        found = [next_token([*known, *chunk.drafts[:count]]) for count in range(len(chunk.drafts) + 1)]
        if scheduler.settle(chunk, verified_tokens(chunk, found)) and len(one.tokens) >= one.max_size:
            scheduler.finish(one, FinishReason.LENGTH)


def test_a_step_verifies_drafts_behind_the_last_token() -> None:
    scheduler = Scheduler(SchedulerLimits(BLOCK, 16, 4, 16))
    one = sequence(1, [1, 2, 3])
    scheduler.add(one)
    run(scheduler, planned(scheduler))
    right = next_token(one.tokens)
    one.drafts = (right, VOCAB)
    plan = planned(scheduler)
    (chunk,) = plan.chunks
    assert (chunk.start, chunk.count, chunk.tokens) == (3, 3, [one.tokens[3], right, VOCAB])
    assert (list(chunk.sampled), plan.has_drafts, plan.token_count) == ([4, 5, 6], True, 3)
    assert scheduler.schedule() is None, "how it goes on is not known before"
    run(scheduler, plan)
    assert (len(one.tokens), one.computed) == (6, 5)
    one.drafts = ()
    assert [(chunk.start, chunk.count) for chunk in planned(scheduler).chunks] == [(5, 1)]


def test_no_draft_is_beyond_the_last_token_the_budget_or_a_change_of_rotation() -> None:
    scheduler = Scheduler(SchedulerLimits(BLOCK, 16, 4, 6))
    ending, other = sequence(1, [1, 2, 3], wanted=4), sequence(2, [1, 2, 3])
    for one in (ending, other):
        scheduler.add(one)
    run(scheduler, planned(scheduler))
    ending.drafts = other.drafts = (1,) * 9
    assert [len(chunk.drafts) for chunk in planned(scheduler).chunks] == [2, 2]
    scheduler = Scheduler(SchedulerLimits(BLOCK, 16, 4, 16, short_positions=6))
    scheduler.add(short := sequence(1, [1, 2, 3]))
    run(scheduler, planned(scheduler))
    short.drafts = (1,) * 9
    assert [len(chunk.drafts) for chunk in planned(scheduler).chunks] == [2]


def test_drafts_take_no_blocks_from_others() -> None:
    scheduler = Scheduler(SchedulerLimits(BLOCK, 5, 4, 64, has_prefix_cache=False))
    first, second = sequence(1, [1] * 3), sequence(2, [2] * 3)
    for one in (first, second):
        scheduler.add(one)
    run(scheduler, planned(scheduler))
    first.drafts, second.drafts = (1,) * 9, (1,) * 9
    assert [len(chunk.drafts) for chunk in planned(scheduler).chunks] == [4, 0]
    assert scheduler.stats.preemptions == 0


def test_what_wrong_drafts_have_written_is_never_taken_for_known() -> None:
    scheduler = Scheduler(SchedulerLimits(BLOCK, 16, 4, 64))
    one = sequence(1, [1, 2, 3])
    scheduler.add(one)
    run(scheduler, planned(scheduler))
    one.drafts = (VOCAB,) * 6
    run(scheduler, planned(scheduler))
    assert len(one.tokens) == 5
    assert len(find_prefix(scheduler.pool, BlockKeys(BLOCK).up_to(one.tokens, 1))) == 1
    wrong = [*one.tokens[:4], *(VOCAB,) * 4]
    assert len(find_prefix(scheduler.pool, BlockKeys(BLOCK).up_to(wrong, 2))) == 1


def test_a_block_is_known_once_its_last_token_is_computed_not_once_it_is_chosen() -> None:
    scheduler = Scheduler(SchedulerLimits(BLOCK, 16, 4, 64))
    one = sequence(1, [1, 2])
    scheduler.add(one)
    run(scheduler, planned(scheduler))
    one.drafts = (VOCAB,) * 3
    run(scheduler, planned(scheduler))
    assert (len(one.tokens), one.computed) == (4, 3)
    assert not find_prefix(scheduler.pool, BlockKeys(BLOCK).up_to(one.tokens, 1))
    one.drafts = ()
    run(scheduler, planned(scheduler))
    assert len(find_prefix(scheduler.pool, BlockKeys(BLOCK).up_to(one.tokens, 1))) == 1


def test_a_sequence_is_planned_ahead_unless_it_awaits_its_drafts() -> None:
    scheduler = Scheduler(SchedulerLimits(BLOCK, 16, 4, 64))
    one = sequence(1, [1, 2, 3])
    scheduler.add(one)
    first = planned(scheduler)
    one.awaits_drafts = True
    assert scheduler.schedule() is None
    one.awaits_drafts = False
    second = planned(scheduler)
    assert second.chunks[0].is_pending
    run(scheduler, first)
    run(scheduler, second)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    blocks=st.integers(6, 24),
    sequences=st.integers(1, 6),
    tokens=st.integers(2, 24),
    has_prefix_cache=st.booleans(),
    depth=st.integers(0, 1),
    short=st.sampled_from([0, 0, 9, 14]),
)
def test_whatever_is_drafted_texts_stay_the_same_and_no_block_is_lost(
    seed: int, blocks: int, sequences: int, tokens: int, has_prefix_cache: bool, depth: int, short: int
) -> None:
    chance = random.Random(seed)
    limits = replace(SchedulerLimits(BLOCK, blocks, sequences, tokens, has_prefix_cache), short_positions=short)
    scheduler = Scheduler(limits)
    everybody, flights, room, verified = [], [], blocks * BLOCK, 0
    for number in range(20):
        prompt = [chance.randrange(3) for _ in range(chance.randrange(1, room - 2))]
        penalty = chance.choice([1.0, 1.0, 1.2])
        wanted = min(room - len(prompt), chance.randrange(1, 20))
        everybody.append(sequence(number, prompt, wanted, repetition_penalty=penalty))
        scheduler.add(everybody[-1])
    for _ in range(3000):
        for one in scheduler.running:
            one.drafts, one.awaits_drafts = (), bool(one.pending) and chance.random() < 0.3
            if not one.pending and chance.random() < 0.7:
                one.drafts = guesses(chance, one)
        plan = scheduler.schedule()
        if plan is not None:
            check_plan(scheduler, plan)
            verified += plan.has_drafts
            flights.append(plan)
        while flights and (plan is None or len(flights) > depth):
            run(scheduler, flights.pop(0))
        if chance.random() < 0.05:
            scheduler.finish(chance.choice(everybody), FinishReason.CANCELLED)
        if not scheduler.has_work and not flights:
            break
    assert all(one.is_finished for one in everybody)
    assert scheduler.pool.free_count == blocks
    for one in everybody:
        for place in range(one.prompt_size, len(one.tokens)):
            assert one.tokens[place] == next_token(one.tokens[:place])
        assert one.finish_reason is FinishReason.CANCELLED or len(one.tokens) == one.max_size


def guesses(chance: random.Random, one: Sequence) -> tuple[int, ...]:
    """Some right, then perhaps wrong ones."""
    tokens = list(one.tokens)
    for _ in range(chance.randrange(5)):
        tokens.append(next_token(tokens))
    return (*tokens[len(one.tokens) :], *(chance.randrange(VOCAB) for _ in range(chance.randrange(4))))


def check_plan(scheduler: Scheduler, plan: StepPlan) -> None:
    assert plan.token_count == sum(chunk.count for chunk in plan.chunks) <= scheduler.limits.max_step_tokens
    writers: dict[int, int] = {}
    for chunk in plan.chunks:
        one = chunk.sequence
        assert chunk.is_pending or len(chunk.tokens) == chunk.count
        assert len(one.blocks) * BLOCK >= chunk.start + chunk.count
        assert chunk.start + chunk.count + bool(chunk.drafts) <= one.max_size
        for position in range(chunk.start, chunk.start + chunk.count):
            assert writers.setdefault(one.blocks[position // BLOCK], one.sequence_id) == one.sequence_id
