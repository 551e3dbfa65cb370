"""Rate limits of models that are reloaded in place: the new ones hold, or nothing changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trireme.config.options.setting_values import RateLimitResource
from trireme.scheduling.rate_limiter import RateLimiter

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def group(count: int, needs: int) -> str:
    limit = f'rate_limiter {{ resources [ {{ name: "R" count: {needs} }} ] }}'
    return f"instance_group [ {{ count: {count} kind: KIND_CPU {limit} }} ]\n"


def limited(world: Any, count: int, needs: int, extra: str = "") -> Path:
    folder: Path = world.add("model", code="hold")
    (folder / "config.pbtxt").write_text(CONFIG + extra + group(count, needs))
    return folder


async def served(world: Any) -> Any:
    limiter = RateLimiter([RateLimitResource("r", 2)])
    server = await world.started(control_mode="explicit", rate_limiter=limiter)
    await server.model_control.load("model")
    return server


def held_count(world: Any) -> int:
    [backend] = world.backends.made
    return sum(len(instance.held) for instance in backend.instances)


def send(world: Any, server: Any, count: int) -> list[Any]:
    answers = []
    for _ in range(count):
        request, answer = world.request_for("model")
        server.inference.infer(request)
        answers.append(answer)
    return answers


@pytest.mark.parametrize(("count", "expected"), [(4, 2), (1, 1)])
def test_a_reload_that_changes_instance_groups_alone_changes_the_limits(world: Any, count: int, expected: int) -> None:
    async def scenario() -> None:
        folder = limited(world, 2, needs=2)
        server = await served(world)
        (folder / "config.pbtxt").write_text(CONFIG + group(count, needs=1))
        await server.model_control.load("model")
        send(world, server, 4)
        assert held_count(world) == expected

    asyncio.run(scenario())


def test_limits_alone_may_change(world: Any) -> None:
    async def scenario() -> None:
        folder = limited(world, 2, needs=1)
        server = await served(world)
        (folder / "config.pbtxt").write_text(CONFIG + group(2, needs=2))
        await server.model_control.load("model")
        send(world, server, 2)
        assert held_count(world) == 1

    asyncio.run(scenario())


def test_a_reload_with_limits_that_can_never_be_met_fails_and_the_model_goes_on(world: Any) -> None:
    async def scenario() -> None:
        folder = limited(world, 2, needs=1)
        server = await served(world)
        (folder / "config.pbtxt").write_text(CONFIG + group(3, needs=5))
        error = await world.refused_later(server.model_control.load("model"))
        assert 'Resource count for "R" is limited to 2' in error.message
        send(world, server, 3)
        assert held_count(world) == 2

    asyncio.run(scenario())


def test_sequences_are_limited(world: Any) -> None:
    async def scenario() -> None:
        limited(world, 3, needs=1, extra="sequence_batching { }\n")
        server = await served(world)
        for number in (1, 2, 3):
            request, _ = world.request_for("model")
            request.correlation_id, request.flags = number, 1
            server.inference.infer(request)
        assert held_count(world) == 2

    asyncio.run(scenario())
