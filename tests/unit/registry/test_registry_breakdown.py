"""A model whose backend broke down after it was loaded, as the index shows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


@pytest.mark.parametrize(("has_worker", "state"), [(False, "UNAVAILABLE"), (True, "READY")])
def test_index_says_why_a_loaded_model_is_broken_until_it_is_healed(world: Any, has_worker: bool, state: str) -> None:
    async def scenario() -> None:
        world.add("model")
        world.add("other")
        server = await world.started()
        backend = world.backends.of("model")[0]
        backend.failure, backend.has_worker = "it was killed", has_worker
        assert world.states(server) == [("model", "1", state, "it was killed"), ("other", "1", "READY", "")]
        ready = [entry.name for entry in server.registry.index(True, server.registry.scan())]
        assert ready == (["model", "other"] if has_worker else ["other"])
        backend.failure = None
        assert world.states(server) == [("model", "1", "READY", ""), ("other", "1", "READY", "")]

    asyncio.run(scenario())


def test_reason_of_a_breakdown_goes_with_the_model(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started(control_mode="explicit", startup_models=("model",))
        world.backends.of("model")[0].failure = "it was killed"
        await server.model_control.unload("model")
        await world.settle(lambda: not server.registry.models.draining)
        assert world.states(server) == [("model", "1", "UNAVAILABLE", "unloaded")]

    asyncio.run(scenario())
