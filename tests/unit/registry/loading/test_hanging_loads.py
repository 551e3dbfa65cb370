"""Models whose load hangs: others load beside them, an unload ends them, and so does a time limit."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from typing import Any

import pytest

from trireme.core.errors import ErrorKind, ServingError
from trireme.registry.loading.poller import RepositoryPoller

LIMIT = 'parameters { key: "trireme_load_timeout" value { string_value: "%s" } }'
UNLOADED = "the load was ended because model 'hangs' was unloaded meanwhile"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


def explicit(world: Any, **options: Any) -> Any:
    return world.started(control_mode="explicit", **options)


async def begun(world: Any, server: Any, name: str, count: int = 1) -> asyncio.Task[None]:
    """A load that hangs by now."""
    loading = asyncio.create_task(server.model_control.load(name))
    await world.settle(lambda: world.backends.loading == count)
    return loading


async def error_of(loading: asyncio.Task[None]) -> ServingError:
    with pytest.raises(ServingError) as caught:
        await loading
    return caught.value


def test_an_unload_ends_the_load_and_its_caller_is_told(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        server = await explicit(world)
        loading = await begun(world, server, "hangs")
        await server.model_control.unload("hangs")
        error = await error_of(loading)
        assert error.kind is ErrorKind.CANCELLED
        assert UNLOADED in error.message
        assert world.backends.made[0].is_stopped
        assert world.states(server) == [("hangs", "1", "UNAVAILABLE", "unloaded")]
        world.backends.gate.set()
        await server.model_control.load("hangs")
        assert (await world.infer(server, "hangs")).error is None

    run(scenario())


def test_loads_that_wait_in_line_end_with_it_and_those_after_the_unload_do_not(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        server = await explicit(world, load_retry_count=3)
        early = await begun(world, server, "hangs")
        waiting = asyncio.create_task(server.model_control.load("hangs"))
        await asyncio.sleep(0.01)
        unloading = asyncio.create_task(server.model_control.unload("hangs"))
        await asyncio.sleep(0)
        late = asyncio.create_task(server.model_control.load("hangs"))
        assert UNLOADED in (await error_of(early)).message
        assert UNLOADED in (await error_of(waiting)).message
        await unloading
        world.backends.gate.set()
        await late
        assert len(world.backends.made) == 2

    run(scenario())


def test_a_load_that_waits_for_its_slot_ends_too(world: Any) -> None:
    async def scenario() -> None:
        world.add("other", code="wait")
        world.add("hangs", code="wait")
        server = await explicit(world, load_concurrency=1, load_slot_s=0)
        other = await begun(world, server, "other")
        loading = asyncio.create_task(server.model_control.load("hangs"))
        await world.settle(lambda: ("hangs", "1", "LOADING", "") in world.states(server))
        assert world.backends.count == 1
        await server.model_control.unload("hangs")
        assert UNLOADED in (await error_of(loading)).message
        world.backends.gate.set()
        await other

    run(scenario())


def test_a_load_that_takes_long_lets_others_begin(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        world.add("quick")
        server = await explicit(world, load_concurrency=1, load_slot_s=0.05)
        loading = await begun(world, server, "hangs")
        await server.model_control.load("quick")
        assert not loading.done()
        world.add("again")
        await server.model_control.load("again")
        world.backends.gate.set()
        await loading
        world.add("last", code="wait")
        await server.model_control.load("last")  # the slot was given back once, not twice
        assert world.backends.most_loading == 2

    run(scenario())


def test_without_a_time_a_load_counts_until_its_end(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        world.add("quick")
        server = await explicit(world, load_concurrency=1, load_slot_s=0)
        loading = await begun(world, server, "hangs")
        waiting = asyncio.create_task(server.model_control.load("quick"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        world.backends.gate.set()
        await loading
        await waiting

    run(scenario())


@pytest.mark.parametrize("config", ["", LIMIT % "0.05"], ids=["flag", "parameter"])
def test_a_load_beyond_its_time_limit_fails_and_nothing_is_left_of_it(world: Any, config: str) -> None:
    async def scenario() -> None:
        folder = world.add("hangs", code="wait")
        (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text() + config)
        server = await explicit(world, load_timeout_s=60 if config else 0.05, load_retry_count=1)
        error = await world.refused_later(server.model_control.load("hangs"))
        assert "it was not ready within 0.05 s and was ended; --model-load-timeout, or the parameter" in error.message
        assert [backend.is_stopped for backend in world.backends.made] == [True, True]
        assert "Unavailable: it was not ready within" in world.states(server)[0][3]

    run(scenario())


def test_a_configuration_may_ask_for_no_limit(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("slow", code="wait")
        (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text() + LIMIT % "0")
        server = await explicit(world, load_timeout_s=0.02)
        loading = await begun(world, server, "slow")
        await asyncio.sleep(0.1)
        world.backends.gate.set()
        await loading

    run(scenario())


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_a_limit_that_is_no_time_is_refused(world: Any, value: str) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text() + LIMIT % value)
        server = await explicit(world)
        error = await world.refused_later(server.model_control.load("model"))
        assert f"parameter 'trireme_load_timeout' of model 'model' must be seconds, 0 or more, found '{value}'" in (
            error.message
        )

    run(scenario())


def test_a_reload_beyond_its_time_leaves_the_old_copy_in_service(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world, startup_models=("model",), load_timeout_s=0.05)
        (folder / "1" / "model.py").write_text("wait")
        await world.refused_later(server.model_control.load("model"))
        assert (await world.infer(server, "model")).error is None

    run(scenario())


def test_the_unload_of_an_ensemble_ends_the_loads_for_it_alone(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        world.add_ensemble("pair", "hangs")
        server = await explicit(world)
        loading = await begun(world, server, "pair")
        await server.model_control.unload("pair")
        error = await error_of(loading)
        assert "load failed for model 'pair'" in error.message
        assert world.backends.made[0].is_stopped

    run(scenario())


def test_the_end_of_the_server_ends_the_load(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        server = await explicit(world)
        loading = await begun(world, server, "hangs")
        server.begin_exit()
        assert await server.registry.stop(5, lambda line: None)
        assert "Server exiting" in (await error_of(loading)).message
        assert world.backends.made[0].is_stopped

    run(scenario())


def test_poll_mode_goes_on_beside_a_load_that_hangs_and_ends_it_with_its_folder(world: Any) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode="poll", poll_seconds=0)
        registry = server.registry
        poller = RepositoryPoller(registry.models, registry._repositories, registry._loader, registry._begin)
        folder = world.add("hangs", code="wait")
        await poller.look(0.05)
        world.add("fresh")
        await poller.look(0.05)
        await world.settle(lambda: not registry._loader.is_at_work_on("fresh"))
        assert [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["fresh"]
        assert [backend.source.name for backend in world.backends.made] == ["hangs", "fresh"]
        shutil.rmtree(folder)
        await poller.look(0.05)
        await world.settle(lambda: not registry._operations)
        assert world.backends.made[0].is_stopped

    run(scenario())


def test_poll_mode_notes_a_failure_beside_a_load_that_hangs(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode="poll", poll_seconds=0)
        registry = server.registry
        poller = RepositoryPoller(registry.models, registry._repositories, registry._loader, registry._begin)
        hanging = world.add("hangs", code="wait")
        bad = world.add("bad", code="fail boom")
        garbled = world.add("garbled", config="nonsense: 3")
        tries = []
        for _ in range(4):
            await poller.look(0.05)
            await world.settle(lambda: not registry._loader.is_at_work_on("bad"))
            tries.append([backend.source.name for backend in world.backends.made].count("bad"))
        assert tries == [1, 1, 2, 2]
        (bad / "1" / "model.py").write_text("# mended")
        shutil.rmtree(garbled)
        await poller.look(0.05)
        await world.settle(lambda: not registry._loader.is_at_work_on("bad"))
        assert [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["bad"]
        shutil.rmtree(hanging)
        await poller.look(0.05)
        await world.settle(lambda: not registry._operations)

    run(scenario())
    assert caplog.text.count("Poll failed for model directory 'garbled'") == 2


def test_models_of_the_start_that_need_each_other_load_together_and_others_beside_them(world: Any) -> None:
    async def scenario() -> None:
        world.add("hangs", code="wait")
        world.add_ensemble("pair", "hangs")
        world.add("alone")
        server = world.server(control_mode="explicit", startup_models=("*",))
        starting = asyncio.create_task(server.registry.start())
        loader = server.registry._loader
        await world.settle(lambda: any(model.name == "alone" for model in server.registry.models.serving()))
        await world.settle(lambda: not loader.is_at_work_on("alone"))
        assert loader.is_at_work_on("pair")
        world.backends.gate.set()
        assert (await starting).is_ok

    run(scenario())
