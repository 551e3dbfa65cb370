"""Live, ready, and ready for one model; and what is left of it during the exit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.errors import ErrorKind


def test_server_is_live_before_it_is_ready(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = world.server()
        assert server.health.is_live()
        assert not await server.health.is_ready()
        await server.registry.start()
        server.mark_started()
        assert await server.health.is_ready()

    asyncio.run(scenario())


@pytest.mark.parametrize(("is_strict", "is_ready"), [(True, False), (False, True)])
def test_failed_model_matters_under_strict_readiness(world: Any, is_strict: bool, is_ready: bool) -> None:
    async def scenario() -> None:
        world.add("good")
        world.add("bad", code="fail boom")
        server = await world.started(is_strict_readiness=is_strict)
        assert await server.health.is_ready() is is_ready
        assert await server.health.is_model_ready("good", "")
        assert not await server.health.is_model_ready("bad", "")
        assert not await server.health.is_model_ready("bad", "1")

    asyncio.run(scenario())


def test_model_without_versions_is_not_ready(world: Any) -> None:
    async def scenario() -> None:
        world.add("empty", versions=())
        server = await world.started()
        assert not await server.health.is_ready()

    asyncio.run(scenario())


def test_unloaded_model_does_not_matter(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started(control_mode="explicit", startup_models=("model",))
        await server.model_control.unload("model")
        await world.settle(lambda: not server.registry.models.draining)
        assert await server.health.is_ready()
        assert not await server.health.is_model_ready("model", "")

    asyncio.run(scenario())


def test_model_that_says_no_is_not_ready(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started()
        world.backends.made[0].is_willing = False
        assert not await server.health.is_ready()
        assert not await server.health.is_model_ready("model", "1")
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_unknown_models_are_not_ready_and_malformed_versions_an_error(world: Any) -> None:
    async def scenario() -> None:
        server = await world.started()
        assert not await server.health.is_model_ready("zz", "")
        assert not await server.health.is_model_ready("zz", "3")
        error = await world.refused_later(server.health.is_model_ready("zz", "abc"))
        assert error.kind is ErrorKind.INVALID_ARGUMENT

    asyncio.run(scenario())


def test_exit(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started(control_mode="explicit", startup_models=("model",))
        server.begin_exit()
        assert server.is_exiting
        for call in (server.health.is_live,):
            assert world.refused(call).message == "Server exiting"
        error = await world.refused_later(server.health.is_ready())
        assert (error.kind, error.message) == (ErrorKind.UNAVAILABLE, "Server exiting")
        for operation in (
            server.health.is_model_ready("model", ""),
            server.model_control.load("model"),
            server.model_control.unload("model"),
            server.model_control.index(False),
        ):
            error = await world.refused_later(operation)
            assert (error.kind, error.message) == (ErrorKind.UNAVAILABLE, "Server not ready")
        for call in (
            lambda: server.metadata.model("model", ""),
            lambda: server.statistics.models("", ""),
        ):
            assert world.refused(call).message == "Server not ready"
        assert server.statistics.metrics_page()

    asyncio.run(scenario())
