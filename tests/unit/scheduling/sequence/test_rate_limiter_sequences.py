"""The rate limiter and the sequence batcher: sequences keep their instance, and wait their turn there."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.sequence_config import OldestStrategyConfig, SequenceBatchingConfig
from trireme.scheduling.rate_limiter import RateLimiter
from trireme.scheduling.rate_limiter_resources import InstanceLimit, ResourceKey

MS = 1_000_000
START, END = 1, 2
R1 = ResourceKey("r1", 0)
R2 = ResourceKey("r2", 0)
DIRECT = SequenceBatchingConfig()
OLDEST = SequenceBatchingConfig(oldest=OldestStrategyConfig(max_candidate_sequences=4))
both_strategies = pytest.mark.parametrize("batching", [DIRECT, OLDEST], ids=["direct", "oldest"])


class Model:
    """One model with sequences, or without where there is no batching."""

    def __init__(
        self,
        bench: Any,
        limiter: RateLimiter,
        batching: SequenceBatchingConfig | None,
        *limits: InstanceLimit,
        max_batch_size: int = 4,
    ) -> None:
        self.bench = bench
        bench.build(sequence_batching=batching, max_batch_size=max_batch_size)
        bench.scheduler.limit(limiter.gate({f"model_{index}": limit for index, limit in enumerate(limits)}))
        self.instances = [bench.instance(name=f"model_{index}") for index in range(len(limits))]

    def send(self, name: str, sequence: int = 0, flags: int = 0) -> Any:
        return self.bench.send(name, correlation_id=sequence, flags=flags)[0]

    @property
    def running(self) -> list[str]:
        batches = [batch for instance in self.instances for batch in instance.batches]
        return [request.id for batch in batches for request in batch.requests if request.id]

    def finish(self) -> None:
        next(instance for instance in self.instances if instance.batches).finish()


@both_strategies
def test_a_sequence_waits_until_another_model_gives_the_resource_back(new_bench: Any, batching: Any) -> None:
    limiter = RateLimiter()
    plain = Model(new_bench(), limiter, None, InstanceLimit({R1: 1}))
    model = Model(new_bench(), limiter, batching, InstanceLimit({R1: 1}))
    plain.send("a")
    model.send("b", 1, START)
    assert (plain.running, model.running) == (["a"], [])
    plain.send("later")
    plain.finish()
    assert (plain.running, model.running) == ([], ["b"])
    model.finish()
    assert (plain.running, model.running) == (["later"], [])
    model.send("c", 1, END)
    assert model.running == []
    plain.finish()
    assert model.running == ["c"]


@both_strategies
def test_instances_of_one_model_share_a_resource_and_sequences_stay_where_they_are(
    new_bench: Any, batching: Any
) -> None:
    model = Model(
        new_bench(), RateLimiter(), batching, InstanceLimit({R1: 1}), InstanceLimit({R1: 1}), max_batch_size=1
    )
    first, second = model.instances
    for step, flags in enumerate((START, 0, END)):
        model.send(f"a{step}", 1, flags)
        model.send(f"b{step}", 2, flags)
    seen = []
    while model.running:
        assert len(model.running) == 1
        seen += model.running
        model.finish()
    assert sorted(seen) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [first.seen, second.seen] == [[["a0"], ["a1"], ["a2"]], [["b0"], ["b1"], ["b2"]]]
    assert model.bench.scheduler.inflight_count == 0


@both_strategies
def test_an_instance_whose_resource_is_taken_does_not_hold_up_another_of_the_model(
    new_bench: Any, batching: Any
) -> None:
    limiter = RateLimiter()
    plain = Model(new_bench(), limiter, None, InstanceLimit({R1: 1}))
    plain.send("busy")
    model = Model(new_bench(), limiter, batching, InstanceLimit({R1: 1}), InstanceLimit({R2: 1}), max_batch_size=1)
    model.send("a", 1, START)
    model.send("b", 2, START)
    assert model.running == ["b"]
    plain.finish()
    assert model.running == ["a", "b"]


@both_strategies
def test_turns_are_shared_by_priority(new_bench: Any, batching: Any) -> None:
    limiter = RateLimiter()
    often = Model(new_bench(), limiter, batching, InstanceLimit({R1: 1}, priority=1), max_batch_size=1)
    seldom = Model(new_bench(), limiter, batching, InstanceLimit({R1: 1}, priority=2), max_batch_size=1)
    for model in (often, seldom):
        for step in range(40):
            model.send(str(step), 1, 0 if step else START)
    turns = []
    for _ in range(30):
        owner = often if often.running else seldom
        turns.append(owner)
        owner.finish()
    assert (turns.count(often), turns.count(seldom)) == (20, 10)


def test_a_batch_that_waits_to_grow_keeps_no_resource_and_no_other_instance(new_bench: Any) -> None:
    limiter = RateLimiter()
    patient = SequenceBatchingConfig(
        oldest=OldestStrategyConfig(max_candidate_sequences=2, max_queue_delay_us=5000, preferred_batch_sizes=(2,))
    )
    model = Model(new_bench(), limiter, patient, InstanceLimit({R1: 1}), InstanceLimit({R1: 1}))
    other = Model(new_bench(), limiter, None, InstanceLimit({R1: 1}))
    model.send("a", 1, START)
    assert model.running == []
    other.send("x")
    assert other.running == ["x"]
    other.finish()
    model.send("b", 2, START)  # with the other instance
    model.send("c", 3, START)  # beside a
    assert sorted(model.running) == ["a", "c"]
    model.finish()
    assert model.running == []
    model.bench.world.advance(6 * MS)
    assert model.running == ["b"]


@both_strategies
def test_a_sequence_that_is_cancelled_while_it_waits_holds_nobody_up(new_bench: Any, batching: Any) -> None:
    limiter = RateLimiter()
    models = [Model(new_bench(), limiter, batching, InstanceLimit({R1: 1})) for _ in range(3)]
    requests = [model.send(str(index), 1, START) for index, model in enumerate(models)]
    requests[1].cancel()
    models[0].finish()
    assert [model.running for model in models] == [[], [], ["2"]]


@both_strategies
def test_an_instance_that_answers_at_once_is_limited_all_the_same(new_bench: Any, batching: Any) -> None:
    model = Model(new_bench(), RateLimiter(), batching, InstanceLimit({R1: 1}))
    [instance] = model.instances
    instance.is_instant = True
    for step in range(500):
        model.send(str(step), 1, 0 if step else START)
    assert len(instance.seen) == 500


@both_strategies
def test_a_lost_instance_gives_its_resource_back_and_ends_its_sequences(new_bench: Any, batching: Any) -> None:
    limiter = RateLimiter()
    first, second = (Model(new_bench(), limiter, batching, InstanceLimit({R1: 1})) for _ in range(2))
    first.send("a", 1, START)
    second.send("b", 1, START)
    first.bench.scheduler.detach(first.instances[0])
    first.finish()
    assert second.running == ["b"]
    first.send("c", 2, START)
    assert first.running == []
    first.bench.scheduler.attach(first.instances[0])
    second.finish()
    assert first.running == ["c"]
