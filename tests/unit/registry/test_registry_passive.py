"""Passive instances take no requests: a model that has no others is refused instead of never answering."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
PASSIVE = "{ count: 1 kind: KIND_CPU passive: true }"
ACTIVE = "{ count: 1 kind: KIND_CPU }"
SAMPLE = (
    'model_warmup [ { name: "s" batch_size: 1 inputs { key: "IN" value '
    "{ data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } } ]"
)
REASON = (
    "Invalid argument: all instance groups of model model are passive, so that no instance would take its requests; "
    "at least one group must be without 'passive'"
)


def groups(*entries: str) -> str:
    return f"{CONFIG}instance_group [ {', '.join(entries)} ]\n"


@pytest.mark.parametrize("warmup", ["", SAMPLE])
def test_model_with_passive_instances_alone_fails_to_load(world: Any, warmup: str) -> None:
    async def scenario() -> None:
        world.add("model", groups(PASSIVE, PASSIVE) + warmup)
        server = await asyncio.wait_for(world.started(), 10)
        assert world.states(server) == [("model", "1", "UNAVAILABLE", REASON)]
        assert not await server.health.is_ready()

    asyncio.run(scenario())


def test_passive_beside_active_instances_load(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", groups(ACTIVE, PASSIVE))
        server = await world.started()
        assert world.states(server) == [("model", "1", "READY", "")]

    asyncio.run(scenario())


def test_change_to_passive_instances_alone_leaves_what_serves(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", groups(ACTIVE))
        server = await world.started(control_mode="explicit", startup_models=("model",))
        (folder / "config.pbtxt").write_text(groups(PASSIVE))
        error = await world.refused_later(server.model_control.load("model"))
        assert "all instance groups of model model are passive" in error.message
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())
