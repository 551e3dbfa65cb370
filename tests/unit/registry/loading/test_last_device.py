"""Reloads of a model that holds the last device there is: nobody is refused, and a failure brings the old copy back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trireme.core.errors import ErrorKind
from trireme.registry.loading.poller import RepositoryPoller
from trireme.registry.options import OnDemandOptions


async def started(world: Any, spec: str = "hpu:1", **options: Any) -> Any:
    options.setdefault("control_mode", "explicit")
    server = world.server(**options)
    world.share_devices(spec, server.registry)
    await server.registry.start()
    server.mark_started()
    return server


def change(folder: Path, code: str, version: int = 1) -> None:
    (folder / str(version) / "model.py").write_text(code)


async def begin_reload(world: Any, server: Any, name: str = "model") -> asyncio.Future[None]:
    """A reload whose old copy has ended and whose new copy waits at the gate."""
    reload = asyncio.ensure_future(server.model_control.load(name))
    old = world.backends.made[-1]
    await world.settle(lambda: old.is_stopped and world.backends.loading == 1)
    return reload


def hold_new_copy(world: Any) -> None:
    """Lets every later copy wait after it has got its device."""
    take = world.backends.devices.take

    async def take_and_wait(*arguments: Any) -> Any:
        assigned = await take(*arguments)
        await world.backends.gate.wait()
        return assigned

    world.backends.devices.take = take_and_wait


@pytest.mark.parametrize("mode", ["explicit", "auto"])
def test_requests_wait_while_the_old_copy_makes_way(world: Any, mode: str) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await started(world, control_mode=mode)
        await server.model_control.load("model")
        hold_new_copy(world)
        change(folder, "# changed")
        reload = await begin_reload(world, server)
        assert world.states(server) == [("model", "1", "LOADING", "")]
        waiting = [asyncio.ensure_future(world.infer(server, "model", version)) for version in ("", "1", "")]
        watching = asyncio.ensure_future(server.inference.loaded("model", ""))
        unknown = asyncio.ensure_future(world.infer(server, "model", "7"))
        await asyncio.sleep(0.02)
        assert not any(answer.done() for answer in (*waiting, watching, unknown))
        world.backends.gate.set()
        await reload
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 2)
        assert [answer.parameters["copy"] for answer in answers] == [2, 2, 2]
        assert (await watching).version == 1
        assert (await unknown).error.kind is ErrorKind.NOT_FOUND
        assert world.backends.count == 2

    asyncio.run(scenario())


def test_questions_are_told_that_the_model_is_being_reloaded(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await started(world)
        await server.model_control.load("model")
        hold_new_copy(world)
        change(folder, "# changed")
        reload = await begin_reload(world, server)
        error = world.refused(lambda: server.metadata.config("model", ""))
        assert error.kind is ErrorKind.UNAVAILABLE
        assert "model 'model' is being reloaded" in error.message
        assert not await server.health.is_model_ready("model", "")
        world.backends.gate.set()
        await reload
        assert server.metadata.config("model", "").name == "model"

    asyncio.run(scenario())


def test_steps_of_an_ensemble_wait_as_well(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        world.add_ensemble("outer", "model")
        server = await started(world)
        await server.model_control.load("outer")
        hold_new_copy(world)
        change(folder, "# changed")
        reload = await begin_reload(world, server)
        waiting = asyncio.ensure_future(world.infer(server, "outer"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        world.backends.gate.set()
        await reload
        assert (await asyncio.wait_for(waiting, 2)).error is None

    asyncio.run(scenario())


def test_wait_is_bounded(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        bounds = OnDemandOptions(queue_size=1, load_timeout_s=0.1)
        server = await started(world, on_demand=bounds)
        await server.model_control.load("model")
        hold_new_copy(world)
        change(folder, "# changed")
        reload = await begin_reload(world, server)
        first = asyncio.ensure_future(world.infer(server, "model"))
        await asyncio.sleep(0)
        refused = await world.refused_later(world.infer(server, "model"))
        assert refused.kind is ErrorKind.UNAVAILABLE
        assert "--on-demand-queue-size" in refused.message
        assert "still being loaded after 0.1 seconds" in (await first).error.message
        world.backends.gate.set()
        await reload

    asyncio.run(scenario())


def test_old_configuration_comes_back_where_the_new_one_fails(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", versions=(1,))
        server = await started(world)
        await server.model_control.load("model")
        hold_new_copy(world)
        folder = world.add("model", versions=(2,), code="fail no weights")
        reload = await begin_reload(world, server)
        waiting = asyncio.ensure_future(world.infer(server, "model"))
        await asyncio.sleep(0.01)
        world.backends.gate.set()
        error = await world.refused_later(reload)
        assert "version 2 is at UNAVAILABLE state: Internal: no weights;" in error.message
        assert "the previous copy" in error.message
        answer = await asyncio.wait_for(waiting, 2)
        assert (answer.error, answer.parameters["copy"]) == (None, 3)
        (first, second) = world.states(server)
        assert first[:3] == ("model", "1", "READY")
        assert "no weights" in first[3]
        assert second == ("model", "2", "UNAVAILABLE", "Internal: no weights")
        # What is mended is loaded, and nothing is left of the failure.
        change(folder, "", version=2)
        await server.model_control.load("model")
        assert world.states(server) == [("model", "1", "UNAVAILABLE", "unloaded"), ("model", "2", "READY", "")]

    asyncio.run(scenario())


def test_version_that_fails_in_its_new_form_comes_back_in_the_old(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await started(world)
        await server.model_control.load("model")
        files = {"file:1/model.py": b"fail on purpose"}
        error = await world.refused_later(server.model_control.load("model", world.override_json(), files))
        assert "on purpose" in error.message
        assert (await world.infer(server, "model")).parameters["copy"] == 3
        ((_, _, state, reason),) = world.states(server)
        assert state == "READY"
        assert "on purpose" in reason
        await server.model_control.unload("model")

    asyncio.run(scenario())


def test_ensemble_goes_on_where_its_model_came_back(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", versions=(1,))
        world.add_ensemble("outer", "model")
        server = await started(world)
        await server.model_control.load("outer")
        world.add("model", versions=(2,), code="fail no weights")
        await world.refused_later(server.model_control.load("model"))
        assert (await world.infer(server, "outer")).error is None

    asyncio.run(scenario())


def test_everybody_is_told_where_the_old_copy_cannot_come_back(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await started(world)
        await server.model_control.load("model")
        hold_new_copy(world)
        change(folder, "fail for good")
        reload = await begin_reload(world, server)
        waiting = asyncio.ensure_future(world.infer(server, "model"))
        await asyncio.sleep(0.01)
        world.backends.gate.set()
        error = await world.refused_later(reload)
        assert "could not be loaded again" in error.message
        refusal = (await asyncio.wait_for(waiting, 2)).error
        assert refusal.kind is ErrorKind.UNAVAILABLE
        assert "for good" in refusal.message
        ((_, _, state, reason),) = world.states(server)
        assert state == "UNAVAILABLE"
        assert "for good" in reason
        assert (await world.refused_later(world.infer(server, "model"))).kind is not ErrorKind.UNAVAILABLE
        change(folder, "")
        await server.model_control.load("model")
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_poller_does_not_try_the_same_failure_again_and_again(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", versions=(1,))
        server = await started(world, control_mode="poll", poll_seconds=0)
        registry = server.registry
        poller = RepositoryPoller(registry.models, registry._repositories, registry._loader, registry._begin)
        folder = world.add("model", versions=(2,), code="fail no weights")
        await poller.look()
        assert world.backends.count == 3  # the old, the new that failed, the old again
        await poller.look()
        assert world.backends.count == 3
        assert (await world.infer(server, "model")).error is None
        change(folder, "# mended", version=2)
        await poller.look()
        assert [state[2] for state in world.states(server)] == ["UNAVAILABLE", "READY"]

    asyncio.run(scenario())


def test_shutdown_answers_those_who_wait_for_a_reload(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await started(world)
        await server.model_control.load("model")
        hold_new_copy(world)
        change(folder, "# changed")
        reload = await begin_reload(world, server)
        waiting = asyncio.ensure_future(world.infer(server, "model"))
        await asyncio.sleep(0.01)
        assert await asyncio.wait_for(server.registry.stop(2), 3)
        assert (await asyncio.wait_for(waiting, 2)).error.kind is ErrorKind.UNAVAILABLE
        assert (await world.refused_later(reload)).kind is ErrorKind.UNAVAILABLE

    asyncio.run(scenario())
