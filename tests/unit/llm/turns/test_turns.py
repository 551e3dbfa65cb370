"""Whose turn it is: requests of one sequence beside those of many, counted in steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import SchedulerLimits
from trireme.llm.turns.waiting_line import WaitingLine

BLOCK = 4


def sequence(
    number: int, wanted: int = 8, request: int | None = None, priority: int = 0, prompt_size: int = 3
) -> Sequence:
    prompt, params = [number % 50 + 1] * prompt_size, SamplingParams()
    most = prompt_size + wanted
    keys = BlockKeys(BLOCK)
    return Sequence(
        number, prompt, prompt_size, params, lambda output: None, keys, most, request_id=request, priority=priority
    )


def choices(first: int, count: int, wanted: int, priority: int = 0) -> list[Sequence]:
    """What `n` makes of one request."""
    return [sequence(first + index, wanted, first, priority) for index in range(count)]


def start(sequences: int, *groups: Iterable[Sequence], blocks: int = 10_000, tokens: int = 4096) -> Scheduler:
    scheduler = Scheduler(SchedulerLimits(BLOCK, blocks, sequences, tokens))
    for group in groups:
        for one in group:
            scheduler.add(one)
    return scheduler


def steps_until(
    scheduler: Scheduler, is_done: Callable[[], bool], each: Callable[[int], object] = lambda step: None
) -> int:
    for step in range(100_000):
        if is_done():
            return step
        each(step)
        plan = scheduler.schedule()
        assert plan is not None
        for chunk in plan.chunks:
            alive = scheduler.settle(chunk, [7] if chunk.samples else ())
            if alive and len(chunk.sequence.tokens) >= chunk.sequence.max_size:
                scheduler.finish(chunk.sequence, FinishReason.LENGTH)
    raise AssertionError("it has no end")


def all_ended(sequences: Iterable[Sequence]) -> Callable[[], bool]:
    listed = list(sequences)
    return lambda: all(one.is_finished for one in listed)


def test_turns_go_alternately_to_who_waits_longest_and_to_the_request_of_which_least_runs() -> None:
    scheduler = start(5, choices(1, 3, wanted=5), [sequence(10), sequence(11)])
    plan = scheduler.schedule()
    assert plan is not None
    assert [chunk.sequence.sequence_id for chunk in plan.chunks] == [1, 10, 2, 11, 3]


def test_small_requests_do_not_wait_until_many_answers_of_those_before_them_are_written() -> None:
    many = [choices(1 + 100 * number, 16, wanted=480) for number in range(8)]
    small = [sequence(1000 + number, wanted=5) for number in range(3)]
    scheduler = start(16, *many)
    steps_until(scheduler, lambda: many[0][0].output_count >= 10)
    for one in small:
        scheduler.add(one)
    assert steps_until(scheduler, all_ended(small)) < 60  # with all in their order it would be 3800
    rest = steps_until(scheduler, all_ended(one for group in many for one in group))
    assert rest < 1.1 * 8 * 480
    assert scheduler.pool.free_count == 10_000


def test_each_request_has_something_that_runs_as_long_as_there_is_room_for_one_of_each() -> None:
    many = [choices(1 + 100 * number, 16, wanted=300 + 7 * number) for number in range(8)]
    scheduler = start(16, *many)
    idle = [0] * len(many)

    def look(step: int) -> None:
        for number, group in enumerate(many):
            is_idle = not any(one.slot >= 0 for one in group) and not all_ended(group)()
            idle[number] = idle[number] + 1 if is_idle else 0
            assert idle[number] <= 40

    steps_until(scheduler, all_ended(one for group in many for one in group), look)


def test_a_request_of_many_gets_on_however_many_small_ones_come() -> None:
    many = choices(1, 8, wanted=40)
    small = [sequence(100 + number, wanted=40) for number in range(10_000)]
    scheduler = start(4, many)
    steps = steps_until(scheduler, all_ended(many), each=lambda step: scheduler.add(small[step]))
    assert steps < 2.5 * 40 * 8 / 4 * 2  # every other turn is its own, and some of it is written twice
    assert sum(one.is_finished for one in small) > 5


def test_without_others_no_place_is_left_empty_and_nobody_gives_way() -> None:
    many = choices(1, 8, wanted=50)
    scheduler = start(8, many)
    assert steps_until(scheduler, all_ended(many)) == 50
    assert scheduler.stats.preemptions == 0


def test_requests_of_one_answer_each_run_in_their_order_and_never_give_way() -> None:
    scheduler = start(2, [sequence(number, wanted=40) for number in range(1, 7)])
    ends: list[int] = []
    everybody = list(scheduler.sequences())
    steps_until(
        scheduler,
        all_ended(everybody),
        lambda step: ends.extend(
            one.sequence_id for one in everybody if one.is_finished and one.sequence_id not in ends
        ),
    )
    assert ends == sorted(ends)
    assert scheduler.stats.preemptions == 0


def test_the_blocks_of_many_answers_are_given_up_for_another_request_as_well() -> None:
    many = choices(1, 8, wanted=150)
    scheduler = start(20, many, blocks=8 * 12)
    steps_until(scheduler, lambda: scheduler.pool.free_count <= 2)
    small = sequence(100, wanted=3, prompt_size=20)
    scheduler.add(small)
    assert steps_until(scheduler, all_ended([small])) < 60
    steps_until(scheduler, all_ended(many))
    assert scheduler.pool.free_count == 96


def test_where_blocks_run_out_the_request_of_which_most_run_gives_them_up() -> None:
    small = sequence(100, wanted=40)
    scheduler = start(20, choices(1, 4, wanted=60), [small], blocks=40)
    steps_until(scheduler, all_ended([small]))
    assert scheduler.stats.preemptions > 0
    assert small.preemptions == 0


@pytest.mark.parametrize("tokens", [4096, 512])
def test_nobody_gives_way_to_what_does_not_fit_beside_others_even_then(tokens: int) -> None:
    long, many = sequence(1, wanted=900, prompt_size=800), choices(100, 16, wanted=120)
    scheduler = start(32, [long], many, blocks=1000, tokens=tokens)
    steps_until(scheduler, lambda: many[0].output_count >= 60)
    large = sequence(1000, prompt_size=3200)
    scheduler.add(large)
    assert steps_until(scheduler, all_ended(many)) == 60
    steps_until(scheduler, all_ended([long, large]))


def test_what_is_more_important_gives_way_to_nobody() -> None:
    many = choices(1, 4, wanted=200, priority=-1)
    scheduler = start(4, many, [sequence(100, wanted=3)])
    assert steps_until(scheduler, all_ended(many)) == 200
    assert scheduler.stats.preemptions == 0


def test_what_has_just_come_in_is_left_until_it_has_written_something() -> None:
    many = choices(1, 4, wanted=200)
    scheduler = start(4, many)
    small = [sequence(100 + number, wanted=2) for number in range(40)]
    steps = steps_until(scheduler, all_ended(many), lambda step: scheduler.add(small[step]) if step < 40 else None)
    assert all(one.is_finished for one in small)
    written = sum(one.output_count for one in many)
    assert scheduler.stats.preemptions <= written // 32
    assert steps < 300


@settings(max_examples=80)
@given(seed=st.integers(0, 100_000), requests=st.integers(1, 6), priorities=st.integers(1, 2))
def test_a_line_says_at_any_time_what_a_look_at_everybody_says(seed: int, requests: int, priorities: int) -> None:
    chance, line = random.Random(seed), WaitingLine()
    waiting: dict[int, Sequence] = {}
    running: dict[int, Sequence] = {}
    for number in range(1, 200):
        new = sequence(number, request=1000 + chance.randrange(requests) if chance.random() < 0.8 else None)
        new.priority = (new.request_id or number) % priorities
        line.add(new)
        waiting[number] = new
        for _ in range(chance.randrange(3)):
            act(chance, line, waiting, running)
        line.is_turn_of_share = chance.random() < 0.5
        check(line, waiting, running)


def act(chance: random.Random, line: WaitingLine, waiting: dict[int, Sequence], running: dict[int, Sequence]) -> None:
    """Somebody ends, is let in, or is thrown out."""
    if running and chance.random() < 0.4:
        one = running.pop(chance.choice(list(running)))
        line.note_end(one)
        if chance.random() < 0.5:
            waiting[one.sequence_id] = one
            line.add(one)
    elif waiting:
        one = waiting.pop(chance.choice(list(waiting)))
        line.remove(one)
        if chance.random() < 0.7:
            running[one.sequence_id] = one
            line.note_start(one)


def check(line: WaitingLine, waiting: dict[int, Sequence], running: dict[int, Sequence]) -> None:
    def share(one: Sequence) -> int:
        return sum(
            (one.request_id or one.sequence_id) == (other.request_id or other.sequence_id) for other in running.values()
        )

    everybody = list(waiting.values())
    by_share = min(everybody, key=lambda one: (one.priority, share(one), one.sequence_id), default=None)
    by_age = min(everybody, key=lambda one: (one.priority, one.sequence_id), default=None)
    assert len(line) == len(waiting)
    assert line.first_by_share() is by_share
    assert line.first() is (by_share if line.is_turn_of_share else by_age)
    assert {one.sequence_id for one in line} == set(waiting)
    assert next(iter(line), None) is line.first()
    assert line.has_several == any(share(one) > 1 for one in running.values())


def test_those_that_have_left_a_line_are_not_kept_for_long() -> None:
    line = WaitingLine()
    everybody = [sequence(number) for number in range(1, 1001)]
    for one in everybody:
        line.add(one)
    for one in everybody[:-1]:
        line.remove(one)
        assert len(line._by_age) <= 2 * len(line) + 64
        assert len(line._by_share) <= 2 * len(line) + 64
    assert list(line) == everybody[-1:]
    assert len(line._requests) == 1
