"""Which models leave to make room or because nobody needs them, and which never do."""

from __future__ import annotations

import asyncio
from typing import Any

from trireme.core.errors import ErrorKind
from trireme.observe.logs import LogSettings
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.registry.options import OnDemandOptions, RegistryOptions
from trireme.registry.registry import ModelRegistry
from trireme.server.server import InferenceServer

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def step(model: str, source: str, target: str) -> str:
    maps = f'input_map {{ key: "IN" value: "{source}" }} output_map {{ key: "OUT" value: "{target}" }}'
    return f'{{ model_name: "{model}" model_version: -1 {maps} }}'


class Sizes:
    """What each model's processes have, as if it were measured."""

    def __init__(self, **by_name: int) -> None:
        self.by_name = by_name

    def __call__(self, backend: Any) -> int:
        return self.by_name.get(backend.source.name, 0) if backend.is_started and not backend.is_stopped else 0


async def started(world: Any, sizes: Sizes | None = None, **options: Any) -> InferenceServer:
    on_demand = OnDemandOptions(**{"sweep_interval_s": 0.02, "load_timeout_s": 5.0, **options})
    registry_options = RegistryOptions((world.repository,), "auto", on_demand=on_demand)
    metrics = MetricsRegistry(MetricsOptions())
    registry = ModelRegistry(registry_options, world.backends, metrics, sizes or Sizes())
    server = InferenceServer(registry, metrics, LogSettings())
    report = await registry.start()
    assert report.is_ok
    server.mark_started()
    return server


def serving(server: InferenceServer) -> set[str]:
    return {model.name for model in server.registry.models.serving()}


def add_sized(world: Any, name: str, size: str, code: str = "", extra: str = "") -> None:
    world.add(name, CONFIG + parameter("trireme_memory_bytes", size) + extra, code=code)


def reason_of(world: Any, server: InferenceServer, name: str) -> str:
    return next(reason for entry, _, _, reason in world.states(server) if entry == name)


def test_the_model_used_the_longest_ago_makes_room(world: Any) -> None:
    async def run() -> None:
        for name in ("a", "b", "c"):
            add_sized(world, name, "40")
        server = await started(world, memory_budget_bytes=100, sweep_interval_s=0.0)
        for name in ("a", "b", "a", "c"):
            assert (await world.infer(server, name)).error is None
        assert serving(server) == {"a", "c"}
        assert reason_of(world, server, "b") == "evicted: memory budget"
        page = server.statistics.metrics_page().decode()
        assert 'trireme_on_demand_evictions_total{model="b",reason="memory_budget"} 1' in page
        assert (await world.infer(server, "b")).error is None
        assert serving(server) == {"b", "c"}
        assert reason_of(world, server, "b") == ""

    asyncio.run(run())


def test_room_is_free_before_the_next_model_begins_to_load(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "old", "80")
        add_sized(world, "new", "80")
        server = await started(world, memory_budget_bytes=100)
        await world.infer(server, "old")
        (old,) = world.backends.of("old")
        end, stop = asyncio.Event(), old.stop

        async def stop_late() -> None:
            await end.wait()
            await stop()

        old.stop = stop_late
        request, answer = world.request_for("new")
        server.inference.infer(request)
        await world.settle(lambda: bool(server.registry.models.draining))
        await asyncio.sleep(0.05)
        assert world.backends.of("new") == []
        assert world.states(server)[0][2:] == ("LOADING", "")
        assert world.states(server)[1][2:] == ("UNLOADING", "evicted: memory budget")
        end.set()
        assert (await asyncio.wait_for(answer, 2)).error is None

    asyncio.run(run())


def test_model_with_a_request_in_flight_stays_until_that_is_answered(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "busy", "80", code="hold")
        add_sized(world, "new", "80")
        server = await started(world, memory_budget_bytes=100)
        running, running_answer = world.request_for("busy")
        server.inference.infer(running)
        await world.settle(lambda: bool(world.backends.made and world.backends.made[0].instances))
        await world.settle(lambda: bool(world.backends.made[0].instances[0].held))
        waiting, waiting_answer = world.request_for("new")
        server.inference.infer(waiting)
        await asyncio.sleep(0.1)
        assert serving(server) == {"busy"}
        assert not waiting_answer.done()
        world.backends.made[0].instances[0].release()
        assert (await running_answer).error is None
        assert (await asyncio.wait_for(waiting_answer, 2)).error is None
        assert serving(server) == {"new"}

    asyncio.run(run())


def test_models_that_stay_in_use_too_long_are_the_answer(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "busy", "80", code="hold")
        add_sized(world, "new", "80")
        server = await started(world, memory_budget_bytes=100, load_timeout_s=0.2)
        server.inference.infer(world.request_for("busy")[0])
        await world.settle(lambda: "busy" in serving(server))
        error = (await asyncio.wait_for(world.infer(server, "new"), 2)).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert serving(server) == {"busy"}

    asyncio.run(run())


def test_model_that_declares_more_than_there_is_for_it_is_refused(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "pinned", "60")
        add_sized(world, "large", "1KiB")
        add_sized(world, "medium", "50")
        server = await started(world, memory_budget_bytes=100, pinned=("pinned",))
        error = (await world.infer(server, "large")).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert "declares 1024 bytes" in error.message
        assert "60 of them taken by pinned models" in (await world.infer(server, "medium")).error.message
        assert serving(server) == {"pinned"}

    asyncio.run(run())


def test_measured_sizes_are_remembered_and_growth_is_noticed(world: Any) -> None:
    async def run() -> None:
        for name in ("a", "b"):
            world.add(name, CONFIG)
        sizes = Sizes(a=60, b=60)
        server = await started(world, sizes, memory_budget_bytes=100)
        await world.infer(server, "a")
        await world.infer(server, "b")  # how large it is, is known only now
        await world.settle(lambda: serving(server) == {"b"})
        await world.infer(server, "a")  # and from now on it is known before
        assert serving(server) == {"a"}
        sizes.by_name["b"] = 10
        await world.infer(server, "b")
        await world.settle(lambda: serving(server) == {"b"})  # 60 as last measured
        await world.infer(server, "b")
        sizes.by_name.update(a=10)
        await world.infer(server, "a")
        await asyncio.sleep(0.06)
        sizes.by_name.update(a=60, b=60)
        await world.settle(lambda: serving(server) == {"a"})

    asyncio.run(run())


def test_pinned_models_are_loaded_at_the_start_and_never_leave(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "by_flag", "30")
        add_sized(world, "by_config", "30", extra=parameter("trireme_pin", "true"))
        for name in ("guest", "visitor"):
            add_sized(world, name, "30")
        server = await started(world, memory_budget_bytes=100, pinned=("by_flag",), ttl_s=0.3)
        assert serving(server) == {"by_flag", "by_config"}
        await world.infer(server, "guest")
        await world.infer(server, "visitor")
        assert {"by_flag", "by_config"} <= serving(server)
        await world.settle(lambda: serving(server) == {"by_flag", "by_config"})
        assert reason_of(world, server, "visitor") == "evicted: idle for 0.3 seconds"
        assert await server.health.is_ready()

    asyncio.run(run())


def test_pinned_model_that_fails_is_a_failed_start(world: Any) -> None:
    async def run() -> None:
        world.add("pinned", CONFIG, code="fail no weights")
        registry = world.registry(control_mode="auto", on_demand=OnDemandOptions(pinned=("pinned",)))
        server = InferenceServer(registry, world.metrics, LogSettings())
        report = await registry.start()
        server.mark_started()
        assert tuple(failure.name for failure in report.failures) == ("pinned",)
        assert not await server.health.is_ready()

    asyncio.run(run())


def test_idle_time_counts_from_the_end_of_a_request(world: Any) -> None:
    async def run() -> None:
        world.add("model", CONFIG, code="hold")
        server = await started(world, ttl_s=0.15)
        request, answer = world.request_for("model")
        server.inference.infer(request)
        await world.settle(lambda: "model" in serving(server))
        await asyncio.sleep(0.4)
        assert serving(server) == {"model"}
        world.backends.made[0].instances[0].release()
        assert (await answer).error is None
        await asyncio.sleep(0.05)
        assert serving(server) == {"model"}
        await world.settle(lambda: serving(server) == set())

    asyncio.run(run())


def test_ensemble_in_use_keeps_its_composing_models(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "inner", "40")
        add_sized(world, "other", "40")
        add_sized(world, "new", "40")
        world.add_ensemble("outer", "inner")
        server = await started(world, memory_budget_bytes=100)
        await world.infer(server, "outer")
        await world.infer(server, "other")
        await world.infer(server, "outer")  # which uses the inner model
        await world.infer(server, "new")
        assert serving(server) == {"inner", "outer", "new"}
        await world.infer(server, "new")
        await world.infer(server, "other")  # now both go: the ensemble is nothing without its model
        assert serving(server) == {"new", "other"}
        assert reason_of(world, server, "outer") == reason_of(world, server, "inner") == "evicted: memory budget"
        assert (await world.infer(server, "outer")).error is None

    asyncio.run(run())


def test_ensemble_does_not_evict_what_it_is_made_of(world: Any) -> None:
    async def run() -> None:
        for name in ("first", "other", "second"):
            add_sized(world, name, "40")
        steps = ",".join([step("first", "IN", "between"), step("second", "between", "OUT")])
        text = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
        world.add("outer", f"{text} ensemble_scheduling {{ step [ {steps} ] }}")
        server = await started(world, memory_budget_bytes=100)
        await world.infer(server, "first")  # used the longest ago, but the ensemble needs it
        await world.infer(server, "other")
        assert (await world.infer(server, "outer")).error is None
        assert serving(server) == {"first", "second", "outer"}
        assert world.backends.count == 3

    asyncio.run(run())


def test_failed_ensemble_does_not_come_back_with_its_composing_model(world: Any) -> None:
    async def run() -> None:
        folder = world.add("inner", CONFIG, code="fail at first")
        world.add_ensemble("outer", "inner")
        server = await started(world, backoff_s=0.0)
        assert "at first" in (await world.infer(server, "outer")).error.message
        (folder / "1" / "model.py").write_text("")
        assert (await world.infer(server, "inner")).error is None
        await asyncio.sleep(0.05)
        assert serving(server) == {"inner"}
        assert (await world.infer(server, "outer")).error is None

    asyncio.run(run())


def test_whoever_needs_the_model_itself_can_wait_for_it(world: Any) -> None:
    async def run() -> None:
        world.add("model", 'backend: "python"', code="wait")
        world.add("broken", CONFIG, code="fail for good")
        server = await started(world, load_timeout_s=0.3)
        waiting = asyncio.ensure_future(server.inference.loaded("model", ""))
        await world.settle(lambda: world.backends.loading == 1)
        assert not waiting.done()
        assert 'waiting_requests{model="model"} 1' in server.statistics.metrics_page().decode()
        assert "still being loaded" in (await world.refused_later(waiting)).message
        assert "for good" in (await world.refused_later(server.inference.loaded("broken", ""))).message
        world.backends.gate.set()
        model = await server.inference.loaded("model", "")
        assert (model.is_placeholder, model.version) == (False, 1)

    asyncio.run(run())


def test_models_that_load_at_the_same_time_share_the_budget(world: Any) -> None:
    async def run() -> None:
        for name in ("a", "b", "c"):
            add_sized(world, name, "60")
        server = await started(world, memory_budget_bytes=100)
        answers = await asyncio.wait_for(asyncio.gather(*(world.infer(server, name) for name in ("a", "b", "c"))), 5)
        assert [answer.error for answer in answers] == [None, None, None]
        assert world.backends.most_loading == 1  # never two of them at once
        assert len(serving(server)) == 1

    asyncio.run(run())


def test_explicit_load_makes_room_and_serves_who_waits(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "old", "60")
        add_sized(world, "new", "60", code="wait")
        server = await started(world, memory_budget_bytes=100)
        await world.infer(server, "old")
        loading = asyncio.ensure_future(server.model_control.load("new"))
        await world.settle(lambda: world.backends.loading == 1)
        assert serving(server) == set()
        request, answer = world.request_for("new")
        server.inference.infer(request)
        world.backends.gate.set()
        await asyncio.wait_for(loading, 2)
        assert (await asyncio.wait_for(answer, 2)).error is None
        assert len(world.backends.of("new")) == 1

    asyncio.run(run())


def test_model_whose_requests_another_process_has_is_not_evicted(world: Any) -> None:
    async def run() -> None:
        world.add("model")
        server = await started(world, ttl_s=0.05)
        await server.registry.load("model", None, {})
        count = 1
        server.registry.models.find("model", "").stats.inflight_elsewhere = lambda: count
        await asyncio.sleep(0.3)
        assert serving(server) == {"model"}
        count = 0
        await world.settle(lambda: not serving(server))
        await server.registry.stop(5)

    asyncio.run(run())
