"""Unloads: what was taken is answered, and nothing else stays."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

from trireme.registry.model import Model


def explicit(world: Any, **options: Any) -> Any:
    return world.started(control_mode="explicit", **options)


def test_unload_answers_what_it_took_and_refuses_the_rest(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", code="hold")
        server = await explicit(world)
        await server.model_control.load("model")
        request, answer = world.request_for("model")
        server.inference.infer(request)
        await server.model_control.unload("model")
        assert world.states(server) == [("model", "1", "UNLOADING", "")]
        error = world.refused(lambda: server.inference.find("model", ""))
        assert error.message == "Request for unknown model: 'model' has no available versions"
        [backend] = world.backends.made
        backend.instances[0].release()
        assert (await answer).error is None
        await world.settle(lambda: backend.is_stopped)
        assert world.states(server) == [("model", "1", "UNAVAILABLE", "unloaded")]

    asyncio.run(scenario())


def test_unload_of_an_unknown_model_succeeds(world: Any) -> None:
    async def scenario() -> None:
        server = await explicit(world)
        await server.model_control.unload("nothere")

    asyncio.run(scenario())


def test_load_while_the_old_copy_still_drains(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", code="hold")
        server = await explicit(world)
        await server.model_control.load("model")
        request, answer = world.request_for("model")
        server.inference.infer(request)
        await server.model_control.unload("model")
        (folder / "1" / "model.py").write_text("")
        await server.model_control.load("model")
        assert world.states(server) == [("model", "1", "READY", "")]
        world.backends.made[0].instances[0].release()
        assert (await answer).error is None
        await world.settle(lambda: world.backends.made[0].is_stopped)
        assert world.states(server) == [("model", "1", "READY", "")]

    asyncio.run(scenario())


def test_failed_model_can_be_unloaded_and_the_server_is_ready_again(world: Any) -> None:
    async def scenario() -> None:
        world.add("bad", code="fail boom")
        server = await explicit(world)
        await world.refused_later(server.model_control.load("bad"))
        assert not await server.health.is_ready()
        await server.model_control.unload("bad")
        assert await server.health.is_ready()

    asyncio.run(scenario())


def test_nothing_of_an_unloaded_model_stays_in_memory(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        world.backends.remembers = False
        server = await explicit(world)
        for _ in range(30):
            await server.model_control.load("model")
            assert (await world.infer(server, "model")).error is None
            await server.model_control.unload("model")
            await world.settle(lambda: not server.registry.models.draining)
        gc.collect()
        assert not [held for held in gc.get_objects() if issubclass(type(held), Model) and held.name == "model"]
        assert len(server.registry.models.records) == 1
        assert "model=" not in server.statistics.metrics_page().decode()

    asyncio.run(scenario())


def add_two_steps(world: Any) -> Path:
    """An ensemble whose first model holds what it gets; the folder of the second."""
    steps = [
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
        f'output_map {{ key: "OUT" value: "{target}" }} }}'
        for model, source, target in (("first", "IN", "between"), ("second", "between", "OUT"))
    ]
    world.add("first", code="hold")
    folder = world.add_ensemble("outer", "first")
    text = (folder / "config.pbtxt").read_text().partition("ensemble_scheduling")[0]
    (folder / "config.pbtxt").write_text(f"{text} ensemble_scheduling {{ step [ {', '.join(steps)} ] }}")
    second: Path = world.add("second")
    return second


async def answer_after_unloads(world: Any, server: Any) -> Any:
    """What becomes of a request in its first step when the ensemble, and then the second model, are unloaded."""
    answer = asyncio.ensure_future(world.infer(server, "outer"))
    (first,) = world.backends.of("first")
    await world.settle(lambda: bool(first.instances[0].held))
    await server.model_control.unload("outer")
    await server.model_control.unload("second")
    await asyncio.sleep(0.02)
    first.instances[0].release()
    return await asyncio.wait_for(answer, 2)


def test_model_unloaded_after_its_ensemble_answers_the_last_requests_of_that(world: Any) -> None:
    async def scenario() -> None:
        add_two_steps(world)
        server = await world.started(control_mode="explicit")
        await server.model_control.load("outer")
        assert (await answer_after_unloads(world, server)).error is None
        await world.settle(lambda: world.backends.of("second")[0].is_stopped)

    asyncio.run(scenario())


def test_copy_that_was_replaced_before_takes_no_steps(world: Any) -> None:
    async def scenario() -> None:
        second = add_two_steps(world)
        (second / "1" / "model.py").write_text("hold")
        server = await world.started(control_mode="explicit")
        await server.model_control.load("outer")
        held = asyncio.ensure_future(world.infer(server, "second"))
        await world.settle(lambda: bool(world.backends.of("second")[0].instances[0].held))
        (second / "1" / "model.py").write_text("# answers")
        await server.model_control.load("second")
        assert (await answer_after_unloads(world, server)).error is None
        world.backends.of("second")[0].instances[0].release()
        assert (await held).error is None

    asyncio.run(scenario())
