"""The end of the server: requests first, then models, all within the time there is."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trireme.core.errors import ErrorKind


def test_idle_models_stop_at_once_and_the_log_says_so(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started()
        assert await server.registry.stop(30)
        assert world.backends.made[0].is_stopped

    caplog.set_level(logging.INFO, "trireme")
    asyncio.run(scenario())
    lines = caplog.messages[caplog.messages.index("Waiting for in-flight requests to complete.") :]
    assert lines[:5] == [
        "Waiting for in-flight requests to complete.",
        "Timeout 30: Found 0 model versions that have in-flight inferences",
        "All models are stopped, unloading models",
        "Timeout 30: Found 1 live models and 0 in-flight non-inference requests",
        "successfully unloaded 'model' version 1",
    ]
    assert lines[-1].endswith("Found 0 live models and 0 in-flight non-inference requests")


def test_models_that_have_ended_are_not_said_to_be_unknown(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started()
        server.begin_exit()
        assert await server.registry.stop(30)
        error = world.refused(lambda: server.inference.infer(world.request_for("model")[0]))
        assert (error.kind, "Server is stopping" in error.message) == (ErrorKind.UNAVAILABLE, True)
        error = world.refused(lambda: server.inference.infer(world.request_for("nothing")[0]))
        assert error.kind is ErrorKind.NOT_FOUND

    asyncio.run(scenario())


def test_requests_that_another_process_has_begun_are_waited_for(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started()
        count = 2
        server.registry.models.find("model", "").stats.inflight_elsewhere = lambda: count
        server.begin_exit()
        lines: list[str] = []
        stop = asyncio.create_task(server.registry.stop(30, lines.append))
        await world.settle(lambda: len(lines) >= 2)
        assert lines[1] == "Model 'model' (version 1) has 2 in-flight inferences"
        assert not world.backends.made[0].is_stopped
        count = 0
        assert await stop

    asyncio.run(scenario())


def test_requests_in_flight_are_waited_for(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", code="hold")
        server = await world.started()
        request, answer = world.request_for("model")
        server.inference.infer(request)
        server.begin_exit()
        lines: list[str] = []
        stop = asyncio.create_task(server.registry.stop(30, lines.append))
        await world.settle(lambda: len(lines) >= 2)
        assert lines[:2] == [
            "Timeout 30: Found 1 model versions that have in-flight inferences",
            "Model 'model' (version 1) has 1 in-flight inferences",
        ]
        assert not world.backends.made[0].is_stopped
        world.backends.made[0].instances[0].release()
        assert await stop
        assert (await answer).error is None

    asyncio.run(scenario())


def test_time_runs_out(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", code="hold")
        server = await world.started()
        request, _ = world.request_for("model")
        server.inference.infer(request)
        assert not await server.registry.stop(0.05)
        world.backends.made[0].instances[0].release()

    asyncio.run(scenario())


def test_load_in_progress_is_interrupted_and_leaves_nothing_behind(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", code="wait")
        server = await world.started(control_mode="explicit")
        load = asyncio.create_task(server.model_control.load("model"))
        await world.settle(lambda: world.backends.loading == 1)
        assert await server.registry.stop(5)
        error = await world.refused_later(load)
        assert error.kind is ErrorKind.UNAVAILABLE
        assert world.backends.made[0].is_stopped
        error = await world.refused_later(server.model_control.load("model"))
        assert error.kind is ErrorKind.UNAVAILABLE

    asyncio.run(scenario())


def test_start_can_be_interrupted(world: Any) -> None:
    async def scenario() -> None:
        world.add("slow", code="wait")
        world.add("quick")
        server = world.server()
        start = asyncio.create_task(server.registry.start())
        await world.settle(lambda: world.backends.loading == 1)
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        assert await server.registry.stop(5)
        assert all(backend.is_stopped for backend in world.backends.made)

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(6))
def test_a_model_whose_load_ends_while_the_server_stops_is_ended_too(turns: int, world: Any) -> None:
    async def scenario() -> None:
        world.add("quick")
        server = world.server()
        stops: list[asyncio.Task[bool]] = []

        async def stop() -> bool:
            for _ in range(turns):
                await asyncio.sleep(0)
            return bool(await server.registry.stop(5))

        world.backends.on_started = lambda: stops.append(asyncio.create_task(stop()))
        await asyncio.gather(server.registry.start(), return_exceptions=True)
        assert await stops[0]
        assert [backend.is_stopped for backend in world.backends.made] == [True]
        assert not list(server.registry.models.serving())

    asyncio.run(scenario())


def test_exit_refuses_new_requests_and_finishes_ensembles(world: Any) -> None:
    async def scenario() -> None:
        world.add_chain("whole", "first", "second")
        world.add("first", code="hold")
        world.add("second")
        server = await world.started()
        request, answer = world.request_for("whole")
        server.inference.infer(request)
        server.begin_exit()
        late, _ = world.request_for("second", request_id="late")
        error = world.refused(lambda: server.inference.infer(late))
        assert error.kind is ErrorKind.UNAVAILABLE
        assert error.message == (
            "[request id: late] Server is stopping, scheduler for model has stopped accepting new inference requests"
        )
        stop = asyncio.create_task(server.registry.stop(5))
        await asyncio.sleep(0)
        world.backends.of("first")[0].instances[0].release()
        assert (await answer).error is None
        assert await stop

    asyncio.run(scenario())
