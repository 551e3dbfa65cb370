"""The rate limiter between schedulers: who runs when resources are short, and what can never run."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import text_format

from trireme.config.options.setting_values import RateLimitResource
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2
from trireme.scheduling.rate_limiter import RateLimiter
from trireme.scheduling.rate_limiter_resources import InstanceLimit, ResourceKey, ResourcePools, instance_limits

R1 = ResourceKey("r1", 0)
R2 = ResourceKey("r2", 0)
SHARED = ResourceKey("shared", None)


class Model:
    """One scheduler whose instances all have the same limit."""

    def __init__(self, bench: Any, limiter: RateLimiter, limit: InstanceLimit, count: int = 1, **batching: Any) -> None:
        self.bench = bench
        if batching:
            bench.batcher(**batching)
        else:
            bench.build()
        self.gate = limiter.gate({f"model_{index}": limit for index in range(count)})
        bench.scheduler.limit(self.gate)
        self.instances = [bench.instance(name=f"model_{index}") for index in range(count)]

    @property
    def running(self) -> list[str]:
        return [request.id for instance in self.instances for batch in instance.batches for request in batch.requests]

    def send(self, *names: str) -> None:
        self.bench.send(*names)

    def finish(self) -> None:
        next(instance for instance in self.instances if instance.batches).finish()


def groups_of(text: str) -> Any:
    return SimpleNamespace(message=text_format.Parse(text, model_config_pb2.ModelConfig()))


def test_an_instance_waits_until_another_model_gives_its_resource_back(new_bench: Any) -> None:
    limiter = RateLimiter()
    first, second = (Model(new_bench(), limiter, InstanceLimit({R1: 1})) for _ in range(2))
    first.send("a")
    second.send("b")
    assert (first.running, second.running) == (["a"], [])
    first.finish()
    assert (first.running, second.running) == ([], ["b"])


def test_models_without_a_common_resource_run_together(new_bench: Any) -> None:
    limiter = RateLimiter()
    first = Model(new_bench(), limiter, InstanceLimit({R1: 1}))
    second = Model(new_bench(), limiter, InstanceLimit({R2: 1}))
    third = Model(new_bench(), limiter, InstanceLimit())
    for model in (first, second, third):
        model.send("x")
    assert [model.running for model in (first, second, third)] == [["x"]] * 3


def test_an_explicit_pool_lets_as_many_run_as_it_holds(new_bench: Any) -> None:
    limiter = RateLimiter([RateLimitResource("r1", 5)])
    model = Model(new_bench(), limiter, InstanceLimit({R1: 2}), count=4)
    model.send("a", "b", "c", "d")
    assert model.running == ["a", "b"]
    model.finish()
    assert sorted(model.running) == ["b", "c"]


def test_a_pool_nobody_sized_is_as_large_as_the_greediest_instance(new_bench: Any) -> None:
    limiter = RateLimiter()
    small = Model(new_bench(), limiter, InstanceLimit({SHARED: 1}), count=3)
    Model(new_bench(), limiter, InstanceLimit({SHARED: 2}))
    small.send("a", "b", "c")
    assert small.running == ["a", "b"]


def test_turns_are_shared_by_priority(new_bench: Any) -> None:
    limiter = RateLimiter()
    often = Model(new_bench(), limiter, InstanceLimit({R1: 1}, priority=1))
    seldom = Model(new_bench(), limiter, InstanceLimit({R1: 1}, priority=2))
    names = [str(number) for number in range(40)]
    often.send(*names)
    seldom.send(*names)
    turns = []
    for _ in range(30):
        owner = often if often.running else seldom
        turns.append(owner)
        owner.finish()
    assert turns.count(often) == 20
    assert turns.count(seldom) == 10


def test_one_that_needs_much_is_not_starved_by_many_that_need_little(new_bench: Any) -> None:
    limiter = RateLimiter([RateLimitResource("r1", 2)])
    small = Model(new_bench(), limiter, InstanceLimit({R1: 1}), count=2)
    large = Model(new_bench(), limiter, InstanceLimit({R1: 2}))
    small.send("a", "b", "c", "d")
    large.send("all")
    small.finish()
    assert small.running == ["b"], "what was given back is kept for the large one"
    small.finish()
    assert (small.running, large.running) == ([], ["all"])
    large.finish()
    assert sorted(small.running) == ["c", "d"]


def test_a_request_that_is_cancelled_while_it_waits_holds_nobody_up(new_bench: Any) -> None:
    limiter = RateLimiter()
    models = [Model(new_bench(), limiter, InstanceLimit({R1: 1})) for _ in range(3)]
    models[0].send("a")
    [waiting] = models[1].bench.send("b")
    models[2].send("c")
    waiting.cancel()
    models[0].finish()
    assert models[2].running == ["c"]


def test_a_batch_that_waits_to_grow_keeps_no_resource(new_bench: Any) -> None:
    limiter = RateLimiter()
    patient = Model(new_bench(), limiter, InstanceLimit({R1: 1}), max_queue_delay_us=5000)
    other = Model(new_bench(), limiter, InstanceLimit({R1: 1}))
    patient.send("a")
    assert patient.running == []
    other.send("b")
    assert other.running == ["b"]
    patient.bench.world.advance(6_000_000)
    assert patient.running == []
    other.finish()
    assert patient.running == ["a"]


def test_an_instance_that_is_lost_gives_its_resources_back(new_bench: Any) -> None:
    limiter = RateLimiter()
    first, second = (Model(new_bench(), limiter, InstanceLimit({R1: 1})) for _ in range(2))
    first.send("a")
    second.send("b")
    first.bench.scheduler.detach(first.instances[0])
    first.finish()
    assert second.running == ["b"]
    first.send("c")
    assert first.running == []
    first.bench.scheduler.attach(first.instances[0])
    second.finish()
    assert first.running == ["c"]


def test_an_instance_that_answers_at_once_is_limited_all_the_same(new_bench: Any) -> None:
    limiter = RateLimiter()
    bench = new_bench()
    bench.build()
    bench.scheduler.limit(limiter.gate({"model_0": InstanceLimit({R1: 1})}))
    instance = bench.instance(is_instant=True)
    bench.send(*map(str, range(500)))
    assert len(instance.seen) == 500


def test_a_resource_that_is_too_small_is_told_at_load() -> None:
    limiter = RateLimiter([RateLimitResource("r1", 2)])
    config = groups_of('instance_group { name: "m" count: 1 rate_limiter { resources { name: "R1" count: 3 } } }')
    with pytest.raises(InvalidArgumentError) as raised:
        limiter.gate(instance_limits(config))
    assert raised.value.message == (
        'Resource count for "R1" is limited to 2 which will prevent scheduling of one or more model instances, '
        "the minimum required count is 3"
    )


def test_a_resource_is_global_or_not() -> None:
    pools = ResourcePools()
    pools.add("first", [InstanceLimit({R1: 1})])
    with pytest.raises(InvalidArgumentError, match='Resource "r1" is present as both global and device-specific'):
        pools.add("second", [InstanceLimit({ResourceKey("r1", None): 1})])
    pools.remove("first")
    pools.add("second", [InstanceLimit({ResourceKey("r1", None): 1})])


def test_resources_are_counted_by_device_unless_global() -> None:
    config = groups_of("""
        instance_group { name: "g" count: 2 kind: KIND_GPU gpus: [ 0, 1 ] rate_limiter {
          priority: 3
          resources { name: "Mem" count: 4 }
          resources { name: "bus" global: true count: 1 } } }
        instance_group { name: "c" count: 1 kind: KIND_CPU }
    """)
    limits = instance_limits(config)
    assert list(limits) == ["g_0", "g_1", "g_2", "g_3", "c_0"]
    assert dict(limits["g_1"].needs) == {ResourceKey("mem", 1): 4, ResourceKey("bus", None): 1}
    assert limits["g_2"].needs == limits["g_0"].needs
    assert limits["g_0"].priority == 3
    assert limits["c_0"].needs == {}
    assert limits["c_0"].priority == 1


def test_a_flag_for_one_device_overrides_the_one_for_all() -> None:
    pools = ResourcePools([RateLimitResource("mem", 2), RateLimitResource("mem", 8, 1)])
    pools.add("on the second", [InstanceLimit({ResourceKey("mem", 1): 8})])
    with pytest.raises(InvalidArgumentError, match="limited to 2"):
        pools.add("on the first", [InstanceLimit({ResourceKey("mem", 0): 8})])


def test_an_unloaded_model_no_longer_counts_for_the_size_of_a_pool(new_bench: Any) -> None:
    limiter = RateLimiter()
    small = Model(new_bench(), limiter, InstanceLimit({R1: 1}), count=2)
    large = Model(new_bench(), limiter, InstanceLimit({R1: 2}))
    asyncio.run(large.bench.scheduler.stop())
    small.send("a", "b")
    assert small.running == ["a"]


def test_changed_limits_hold_for_instances_that_stay_and_for_those_that_come(new_bench: Any) -> None:
    model = Model(new_bench(), RateLimiter([RateLimitResource("r1", 4)]), InstanceLimit({R1: 4}), count=2)
    model.send("a", "b", "c", "d", "e")
    assert model.running == ["a"]
    model.gate.change({f"model_{index}": InstanceLimit({R1: 1}) for index in range(3)})
    assert model.running == ["a"], "what runs has what it took"
    model.instances.append(model.bench.instance(name="model_2"))
    model.finish()
    assert sorted(model.running) == ["b", "c", "d"]


def test_limits_that_become_smaller_let_others_start_at_once(new_bench: Any) -> None:
    limiter = RateLimiter([RateLimitResource("r1", 2)])
    model = Model(new_bench(), limiter, InstanceLimit({R1: 2}), count=2)
    first, other = model, Model(new_bench(), limiter, InstanceLimit({R1: 1}))
    other.send("x")
    first.send("a")
    assert (first.running, other.running) == ([], ["x"])
    first.gate.change({"model_0": InstanceLimit({R1: 1}), "model_1": InstanceLimit({R1: 1})})
    assert first.running == ["a"]


def test_changed_limits_that_can_never_be_met_are_refused_and_the_old_ones_stay(new_bench: Any) -> None:
    model = Model(new_bench(), RateLimiter([RateLimitResource("r1", 2)]), InstanceLimit({R1: 1}), count=3)
    with pytest.raises(InvalidArgumentError, match="limited to 2"):
        model.gate.change({"model_0": InstanceLimit({R1: 3})})
    model.send("a", "b", "c")
    assert model.running == ["a", "b"]


def test_a_resource_may_become_global_when_nobody_else_has_it(new_bench: Any) -> None:
    limiter = RateLimiter()
    model = Model(new_bench(), limiter, InstanceLimit({R1: 1}))
    everywhere = ResourceKey("r1", None)
    model.gate.change({"model_0": InstanceLimit({everywhere: 1})})
    other = Model(new_bench(), limiter, InstanceLimit({everywhere: 1}))
    model.send("a")
    other.send("b")
    assert (model.running, other.running) == (["a"], [])


def test_an_instance_that_leaves_keeps_its_limit_until_it_is_gone(new_bench: Any) -> None:
    limiter = RateLimiter()
    model = Model(new_bench(), limiter, InstanceLimit({R1: 3}), count=1)
    other = Model(new_bench(), limiter, InstanceLimit({R1: 1}), count=3)
    model.gate.change({"new_0": InstanceLimit({R1: 1})})
    model.send("still here")
    other.send("a", "b", "c")
    assert (model.running, other.running) == (["still here"], [])
    model.finish()
    assert other.running == ["a", "b", "c"]
    model.bench.scheduler.detach(model.instances[0])
    for _ in range(3):
        other.finish()
    other.send("d", "e")
    assert other.running == ["d"], "the pool is as large as the greediest that is left needs"
