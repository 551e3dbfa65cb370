"""An ensemble that fails says why for as long as nobody unloads it, and the server is not ready."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

MISFIT = (
    "Invalid argument: in ensemble whole, ensemble tensor IN: inconsistent data type: TYPE_FP32 is inferred from model "
    "whole while TYPE_INT32 is inferred from model part"
)


def change_type(folder: Path) -> None:
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_FP32", "TYPE_INT32"))


def test_ensemble_whose_reloaded_part_no_longer_fits_says_why_until_it_is_unloaded(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        server = await world.started(control_mode="explicit", startup_models=("whole",))
        change_type(folder)
        await server.model_control.load("part")
        await world.settle(lambda: not server.registry.models.draining)
        assert ("whole", "1", "UNAVAILABLE", MISFIT) in world.states(server)
        assert not await server.health.is_ready()
        await server.model_control.unload("whole")
        assert ("whole", "1", "UNAVAILABLE", "unloaded") in world.states(server)
        assert await server.health.is_ready()

    asyncio.run(scenario())


def test_ensemble_that_fails_at_the_start_says_why(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        change_type(folder)
        server = world.server()
        report = await server.registry.start()
        server.mark_started()
        assert report.rows == (("part", "1", "READY"), ("whole", "1", f"UNAVAILABLE: {MISFIT}"))
        assert ("whole", "1", "UNAVAILABLE", MISFIT) in world.states(server)
        assert not await server.health.is_ready()

    asyncio.run(scenario())


def test_reload_that_breaks_an_ensemble_says_why_while_its_requests_end_and_after(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add_ensemble("whole", "part")
        world.add("part", code="hold")
        server = await world.started(control_mode="explicit", startup_models=("whole",))
        request, answer = world.request_for("whole")
        server.inference.infer(request)
        change_type(folder)
        error = await world.refused_later(server.model_control.load("whole"))
        assert "inconsistent data type" in error.message
        [(*_, state, reason)] = [entry for entry in world.states(server) if entry[0] == "whole"]
        assert state == "UNLOADING"
        assert reason.startswith("Invalid argument: in ensemble whole")
        world.backends.of("part")[0].instances[0].release()
        assert (await answer).error is None
        await world.settle(lambda: not server.registry.models.draining)
        assert ("whole", "1", "UNAVAILABLE", reason) in world.states(server)

    asyncio.run(scenario())


def test_unloaded_ensemble_that_cannot_come_back_says_why(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        server = await world.started(control_mode="explicit", startup_models=("whole",))
        await server.model_control.unload("part")
        await world.settle(lambda: not server.registry.models.draining)
        (folder / "1" / "model.py").write_text("fail boom")
        await world.refused_later(server.model_control.load("whole"))
        [reason] = [entry[3] for entry in world.states(server) if entry[0] == "whole"]
        assert reason.startswith("Invalid argument: ensemble 'whole' depends on 'part' which has no loaded version.")

    asyncio.run(scenario())
