"""An instance that is taken away finishes its sequences first, and begins none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trireme.config.sequence_config import OldestStrategyConfig, SequenceBatchingConfig

START, END = 1, 2
MS = 1_000_000
strategies = pytest.mark.parametrize(
    "fields", [{}, {"oldest": OldestStrategyConfig(max_candidate_sequences=2)}], ids=["direct", "oldest"]
)


def build(bench: Any, **fields: Any) -> None:
    bench.build(sequence_batching=SequenceBatchingConfig(max_idle_us=1000, **fields), max_batch_size=2)


def drained(bench: Any, instance: Any, scenario: Callable[[asyncio.Task[None]], Awaitable[None]]) -> None:
    """Runs the scenario while the instance drains; after it nothing may be left."""

    async def run() -> None:
        task = asyncio.create_task(bench.scheduler.drain(instance))
        await asyncio.sleep(0)
        await scenario(task)
        await asyncio.wait_for(task, 1)

    asyncio.run(run())


@strategies
def test_live_sequences_go_on_where_they_are_and_new_ones_begin_elsewhere(bench: Any, fields: Any) -> None:
    build(bench, **fields)
    leaving = bench.instance(name="model_0", is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    staying = bench.instance(name="model_1", is_instant=True)

    async def scenario(task: asyncio.Task[None]) -> None:
        bench.send("b", correlation_id=2, flags=START | END)
        bench.send("a2", correlation_id=1)
        await asyncio.sleep(0)
        assert not task.done()
        bench.send("a3", correlation_id=1, flags=END)
        await task
        bench.send("again", correlation_id=1, flags=START | END)

    drained(bench, leaving, scenario)
    assert leaving.seen == [["a"], ["a2"], ["a3"]]
    assert [seen[-1] for seen in staying.seen] == ["b", "again"]
    assert all(answers[0].error is None for answers in bench.client.answers.values())


@strategies
def test_a_silent_sequence_holds_the_instance_no_longer_than_it_may_be_idle(bench: Any, fields: Any) -> None:
    build(bench, **fields)
    leaving = bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)

    async def scenario(task: asyncio.Task[None]) -> None:
        bench.world.advance(MS // 2)
        bench.send("a2", correlation_id=1)
        bench.world.advance(MS - 1)
        await asyncio.sleep(0)
        assert not task.done(), "it spoke meanwhile"
        bench.world.advance(1)

    drained(bench, leaving, scenario)


def test_an_instance_without_sequences_is_drained_at_once(bench: Any) -> None:
    build(bench)
    leaving = bench.instance()
    asyncio.run(asyncio.wait_for(bench.scheduler.drain(leaving), 1))
    bench.send("a", correlation_id=1, flags=START)
    assert (leaving.seen, bench.scheduler.pending_count) == ([], 1)
    bench.scheduler.detach(leaving)
    other = bench.instance(name="model_1", is_instant=True)
    assert other.seen == [["a"]]


def test_a_worker_that_dies_meanwhile_ends_the_wait(bench: Any) -> None:
    build(bench)
    leaving = bench.instance()
    bench.send("a", correlation_id=1, flags=START)

    async def scenario(task: asyncio.Task[None]) -> None:
        bench.scheduler.detach(leaving)

    drained(bench, leaving, scenario)


def test_the_instances_of_other_schedulers_have_nothing_to_drain(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a")
    asyncio.run(asyncio.wait_for(bench.scheduler.drain(instance), 1))
