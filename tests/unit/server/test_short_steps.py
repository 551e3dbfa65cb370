"""Short steps are done at once, unless they are so many that others would have to wait."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from trireme.server import long_work
from trireme.server.long_work import ShortSteps


class Clock:
    now_s = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(long_work, "monotonic", lambda: clock.now_s)
    return clock


def test_few_steps_are_done_when_they_come(clock: Clock) -> None:
    done: list[int] = []
    steps = ShortSteps()
    for number in range(3):
        steps.do([partial(done.append, 2 * number), partial(done.append, 2 * number + 1)])
    assert done == list(range(6))


def test_many_steps_leave_others_their_turn_and_keep_their_order(clock: Clock) -> None:
    done: list[int] = []

    def step(number: int) -> None:
        clock.now_s += 0.003
        done.append(number)

    async def story() -> list[int]:
        steps, turns = ShortSteps(), []
        for begin in range(0, 100, 10):  # ten clients leave in one turn
            steps.do([partial(step, number) for number in range(begin, begin + 10)])
        while len(done) < 100:
            turns.append(len(done))
            await asyncio.sleep(0)
        return turns

    turns = asyncio.run(story())
    assert done == list(range(100))
    assert max(after - before for before, after in pairwise(turns)) <= 7, "20 ms of 3 each"


def test_a_step_that_raises_keeps_those_behind_it_from_nothing(clock: Clock) -> None:
    done: list[int] = []

    def step(number: int) -> None:
        clock.now_s += 0.03
        done.append(number)
        if number == 1:
            raise ValueError("one of them")

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        steps = ShortSteps()
        steps.do([partial(step, number) for number in range(4)])
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(story())
    assert done == [0, 1, 2, 3]
