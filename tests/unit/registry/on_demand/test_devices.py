"""Models on demand that share a device which only one of them can have: the one used the longest ago gives it up."""

from __future__ import annotations

import asyncio
from typing import Any

from trireme.core.errors import ErrorKind
from trireme.devices.ownership import DeviceRequest
from trireme.registry.options import OnDemandOptions

PIN = 'parameters { key: "trireme_pin" value { string_value: "true" } }\n'
CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


async def started(world: Any, spec: str, **options: Any) -> Any:
    server = world.server(control_mode="auto", on_demand=OnDemandOptions(**{"load_timeout_s": 5.0, **options}))
    world.share_devices(spec, server.registry)
    report = await server.registry.start()
    assert report.is_ok, report
    server.mark_started()
    return server


def serving(server: Any) -> set[str]:
    return {model.name for model in server.registry.models.serving()}


async def ask(world: Any, server: Any, *names: str) -> None:
    for name in names:
        answer = await asyncio.wait_for(world.infer(server, name), 5)
        assert answer.error is None, answer.error.message


def test_model_used_the_longest_ago_gives_up_its_device(world: Any) -> None:
    async def scenario() -> None:
        for name in ("a", "b", "c"):
            world.add(name)
        server = await started(world, "hpu:2")
        await ask(world, server, "a", "b", "a", "c")
        assert serving(server) == {"a", "c"}
        reasons = {name: reason for name, _, _, reason in world.states(server)}
        assert reasons["b"] == "evicted: device needed by 'c'"
        await ask(world, server, "b")
        assert serving(server) == {"b", "c"}

    asyncio.run(scenario())


def test_row_of_devices_costs_the_models_that_were_used_the_longest_ago(world: Any) -> None:
    async def scenario() -> None:
        for name in ("a", "b", "c", "d", "pair"):
            world.add(name)
        server = await started(world, "neuron:1x4")
        world.backends.wanted = DeviceRequest("neuron")
        await ask(world, server, "a", "b", "c", "d")  # on the cores 3, 2, 1 and 0
        await ask(world, server, "a", "d")
        world.backends.wanted = DeviceRequest("neuron", count=2)
        await ask(world, server, "pair")
        assert serving(server) == {"a", "d", "pair"}
        assert world.backends.of("pair")[0].assigned == (1, 2)

    asyncio.run(scenario())


def test_model_in_use_keeps_its_device_until_it_has_answered(world: Any) -> None:
    async def scenario() -> None:
        world.add("busy", code="hold")
        world.add("next")
        server = await started(world, "hpu:1")
        request, answer = world.request_for("busy")
        server.inference.infer(request)
        await world.settle(lambda: "busy" in serving(server))
        waiting = asyncio.ensure_future(world.infer(server, "next"))
        await asyncio.sleep(0.1)
        assert serving(server) == {"busy"}
        world.backends.of("busy")[0].instances[0].release()
        assert (await answer).error is None
        assert (await asyncio.wait_for(waiting, 2)).error is None
        assert serving(server) == {"next"}

    asyncio.run(scenario())


def test_two_models_that_are_asked_for_at_once_have_the_device_one_after_the_other(world: Any) -> None:
    async def scenario() -> None:
        for name in ("a", "b", "c"):
            world.add(name)
        server = await started(world, "hpu:1")
        answers = await asyncio.wait_for(asyncio.gather(*(world.infer(server, name) for name in ("a", "b", "c"))), 5)
        assert [answer.error for answer in answers] == [None, None, None]
        assert len(serving(server)) == 1

    asyncio.run(scenario())


def test_pinned_model_keeps_its_device(world: Any) -> None:
    async def scenario() -> None:
        world.add("pinned", CONFIG + PIN)
        world.add("next")
        server = await started(world, "hpu:1")
        error = (await asyncio.wait_for(world.infer(server, "next"), 2)).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert "hpu 0 belongs to model 'pinned'" in error.message
        assert serving(server) == {"pinned"}

    asyncio.run(scenario())


def test_models_of_one_ensemble_do_not_evict_each_other(world: Any) -> None:
    async def scenario() -> None:
        steps = [
            f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
            f'output_map {{ key: "OUT" value: "{target}" }} }}'
            for model, source, target in (("first", "IN", "between"), ("second", "between", "OUT"))
        ]
        text = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
        world.add("outer", f"{text} ensemble_scheduling {{ step [ {', '.join(steps)} ] }}")
        for name in ("first", "second", "other"):
            world.add(name)
        server = await started(world, "hpu:1")
        error = (await asyncio.wait_for(world.infer(server, "outer"), 2)).error
        assert "belongs to model" in error.message
        server = await started(world, "hpu:2", backoff_s=0.0)
        await ask(world, server, "first", "other", "outer")
        assert serving(server) == {"first", "second", "outer"}
        await ask(world, server, "other")  # the ensemble goes with the one that gives up its device
        assert "outer" not in serving(server)

    asyncio.run(scenario())


def test_model_that_stays_in_use_is_the_answer(world: Any) -> None:
    async def scenario() -> None:
        world.add("busy", code="hold")
        world.add("next")
        server = await started(world, "hpu:1", load_timeout_s=0.2)
        server.inference.infer(world.request_for("busy")[0])
        await world.settle(lambda: "busy" in serving(server))
        error = (await asyncio.wait_for(world.infer(server, "next"), 2)).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert serving(server) == {"busy"}

    asyncio.run(scenario())


def test_explicit_load_takes_the_device_as_well(world: Any) -> None:
    async def scenario() -> None:
        world.add("old")
        world.add("new")
        server = await started(world, "hpu:1")
        await ask(world, server, "old")
        await asyncio.wait_for(server.model_control.load("new"), 2)
        assert serving(server) == {"new"}

    asyncio.run(scenario())


def test_nothing_is_evicted_in_mode_explicit(world: Any) -> None:
    async def scenario() -> None:
        world.add("old")
        world.add("new")
        server = world.server(control_mode="explicit")
        world.share_devices("hpu:1", server.registry)
        await server.registry.start()
        await server.model_control.load("old")
        error = await world.refused_later(server.model_control.load("new"))
        assert "hpu 0 belongs to model 'old'" in error.message
        assert serving(server) == {"old"}

    asyncio.run(scenario())
