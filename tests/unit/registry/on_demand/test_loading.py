"""Models that requests load: who waits, in which order, how long, and what they are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.errors import ErrorKind, NotFoundError, ServingError, UnavailableError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.registry.options import OnDemandOptions

AUTO_CONFIG = 'backend: "python"\n'


async def started(world: Any, **options: Any) -> Any:
    on_demand = OnDemandOptions(**{"sweep_interval_s": 0.02, **options})
    return await world.started(control_mode="auto", on_demand=on_demand)


def entry_of(world: Any, server: Any, name: str) -> tuple[str, str]:
    return next((state, reason) for entry, _, state, reason in world.states(server) if entry == name)


def test_first_request_loads_its_model_and_only_that(world: Any) -> None:
    async def run() -> None:
        world.add("one")
        world.add("two")
        server = await started(world)
        assert world.backends.made == []
        response = await world.infer(server, "one")
        assert response.error is None
        assert [tensor.name for tensor in response.outputs] == ["OUT"]
        assert [backend.source.name for backend in world.backends.made] == ["one"]
        assert (await world.infer(server, "one", "1")).error is None
        assert world.backends.count == 1

    asyncio.run(run())


def test_questions_about_a_model_load_nothing(world: Any) -> None:
    async def run() -> None:
        world.add("model")
        server = await started(world)
        assert await server.health.is_ready()
        assert not await server.health.is_model_ready("model", "")
        for ask in (server.metadata.model, server.metadata.config):
            assert world.refused(lambda ask=ask: ask("model", "")).kind is ErrorKind.NOT_FOUND
        assert world.refused(lambda: server.statistics.models("model", ""))
        assert entry_of(world, server, "model") == ("UNAVAILABLE", "on demand: not loaded")
        assert [config.name for config in server.registry.available_configs()] == ["model"]
        await asyncio.sleep(0.01)
        assert world.backends.made == []

    asyncio.run(run())


def test_requests_that_wait_are_served_in_the_order_they_came_before_later_ones(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world)
        order: list[str] = []
        late: list[InferenceRequest] = []
        for number in range(5):
            request, _ = world.request_for("model", request_id=str(number))
            request.respond = lambda response, number=number: order.append(f"waited {number}")
            server.inference.infer(request)
        [release] = server.registry.models.on_install

        def release_and_ask(name: str) -> None:
            release(name)  # in the very moment in which the model can be found
            request, _ = world.request_for("model", request_id="late")
            request.respond = lambda response: order.append("late")
            late.append(request)
            server.inference.infer(request)

        server.registry.models.on_install = [release_and_ask]
        await world.settle(lambda: world.backends.loading == 1)
        assert entry_of(world, server, "model") == ("LOADING", "")
        assert order == []
        world.backends.gate.set()
        await world.settle(lambda: len(order) == 6)
        assert order == [*(f"waited {number}" for number in range(5)), "late"]
        assert world.backends.count == 1

    asyncio.run(run())


def test_failed_load_tells_everybody_why_and_is_not_tried_again_at_once(world: Any) -> None:
    async def run() -> None:
        folder = world.add("model", code="fail the weights are missing")
        server = await started(world, backoff_s=0.15)
        answers = []
        for _ in range(3):
            request, answer = world.request_for("model")
            server.inference.infer(request)
            answers.append(answer)
        for answer in answers:
            error = (await answer).error
            assert error.kind is ErrorKind.UNAVAILABLE
            assert "the weights are missing" in error.message
        refused = world.refused(lambda: server.inference.find("model", ""))
        assert refused.kind is ErrorKind.UNAVAILABLE
        assert "the weights are missing" in refused.message
        assert "tries again" in refused.message
        assert world.backends.count == 1
        assert "the weights are missing" in entry_of(world, server, "model")[1]
        assert await server.health.is_ready()
        (folder / "1" / "model.py").write_text("")
        await asyncio.sleep(0.16)
        assert (await world.infer(server, "model")).error is None

    asyncio.run(run())


def test_explicit_load_ends_the_back_off(world: Any) -> None:
    async def run() -> None:
        folder = world.add("model", code="fail now")
        server = await started(world, backoff_s=600)
        assert (await world.infer(server, "model")).error is not None
        (folder / "1" / "model.py").write_text("")
        await server.model_control.load("model")
        assert (await world.infer(server, "model")).error is None

    asyncio.run(run())


def test_configuration_that_cannot_be_read_is_told_at_once(world: Any) -> None:
    async def run() -> None:
        world.add("model", config="max_batch_size: many")
        server = await started(world)
        refused = world.refused(lambda: server.inference.find("model", ""))
        assert refused.kind is ErrorKind.UNAVAILABLE
        assert "config.pbtxt" in refused.message or "max_batch_size" in refused.message
        assert world.backends.count == 0

    asyncio.run(run())


def test_request_that_waits_too_long_is_answered_and_the_load_goes_on(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world, load_timeout_s=0.05)
        error = (await asyncio.wait_for(world.infer(server, "model"), 2)).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert "still being loaded after 0.05 seconds" in error.message
        assert "--on-demand-load-timeout" in error.message
        world.backends.gate.set()
        await world.settle(lambda: entry_of(world, server, "model")[0] == "READY")
        assert (await world.infer(server, "model")).error is None
        assert world.backends.count == 1

    asyncio.run(run())


def test_only_so_many_requests_wait(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world, queue_size=2)
        kept = [world.request_for("model") for _ in range(2)]
        for request, _ in kept:
            server.inference.infer(request)
        refused = world.refused(lambda: server.inference.infer(world.request_for("model", request_id="third")[0]))
        assert refused.kind is ErrorKind.UNAVAILABLE
        assert "[request id: third]" in refused.message
        assert "--on-demand-queue-size" in refused.message
        world.backends.gate.set()
        assert [(await answer).error for _, answer in kept] == [None, None]

    asyncio.run(run())


def test_cancelled_request_leaves_the_queue_and_the_others_stay(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world, queue_size=2)
        (gone, answer), (kept, kept_answer) = world.request_for("model"), world.request_for("model")
        server.inference.infer(gone)
        server.inference.infer(kept)
        gone.cancel()
        assert (await asyncio.wait_for(answer, 2)).error.kind is ErrorKind.CANCELLED
        server.inference.infer(world.request_for("model")[0])  # there is room again
        await world.settle(lambda: world.backends.loading == 1)
        world.backends.gate.set()
        assert (await kept_answer).error is None
        await world.settle(lambda: world.backends.made[0].instances[0].batches == [[1], [1]])

    asyncio.run(run())


def test_unload_while_requests_wait_ends_the_load_and_answers_them(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world)
        request, answer = world.request_for("model")
        server.inference.infer(request)
        await world.settle(lambda: world.backends.loading == 1)
        await asyncio.wait_for(server.model_control.unload("model"), 2)
        error = (await asyncio.wait_for(answer, 2)).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert "the load was ended because model 'model' was unloaded meanwhile" in error.message
        world.backends.gate.set()
        await world.settle(lambda: entry_of(world, server, "model") == ("UNAVAILABLE", "unloaded"))
        assert (await world.infer(server, "model")).error is None  # and the next request has it loaded again
        assert world.backends.count == 2

    asyncio.run(run())


def test_shutdown_while_requests_wait_answers_them_and_ends(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world)
        request, answer = world.request_for("model")
        server.inference.infer(request)
        await world.settle(lambda: world.backends.loading == 1)
        server.begin_exit()
        assert await asyncio.wait_for(server.registry.stop(5, lambda line: None), 3)
        assert (await asyncio.wait_for(answer, 1)).error.kind is ErrorKind.UNAVAILABLE
        assert all(backend.is_stopped for backend in world.backends.made)
        with pytest.raises(UnavailableError):
            server.inference.find("model", "")

    asyncio.run(run())


def test_new_folders_are_found_and_removed_ones_are_not(world: Any) -> None:
    async def run() -> None:
        server = await started(world)
        with pytest.raises(NotFoundError):
            server.inference.find("late", "")
        folder = world.add("late")
        assert (await world.infer(server, "late")).error is None
        folder.rename(world.root / "elsewhere")
        await world.settle(lambda: not server.registry.models.draining and not list(server.registry.models.serving()))
        for version in ("", "1"):
            with pytest.raises(NotFoundError):
                server.inference.find("late", version)
        assert world.states(server) == []

    asyncio.run(run())


def test_names_that_lead_out_of_the_repository_are_unknown(world: Any) -> None:
    async def run() -> None:
        world.add("secret", repository=world.root / "outside")
        (world.repository / ".hidden").mkdir()
        server = await started(world)
        for name in ("../outside/secret", "..", ".", "", ".hidden", str(world.root / "outside" / "secret"), "a\0b"):
            with pytest.raises(NotFoundError):
                server.inference.find(name, "")

    asyncio.run(run())


def test_versions_are_checked_against_the_folder_before_anything_is_loaded(world: Any) -> None:
    async def run() -> None:
        world.add("model", versions=(1, 2))
        server = await started(world)
        with pytest.raises(NotFoundError):
            server.inference.find("model", "7")
        with pytest.raises(ServingError):
            server.inference.find("model", "seven")
        assert world.backends.made == []
        error = (await world.infer(server, "model", "1")).error  # the policy serves the latest version only
        assert error.kind is ErrorKind.NOT_FOUND
        assert (await world.infer(server, "model")).error is None

    asyncio.run(run())


def test_request_is_checked_against_the_model_and_not_the_placeholder(world: Any) -> None:
    async def run() -> None:
        world.add("model", code="wait")
        server = await started(world)
        request, answer = world.request_for("model", name="WRONG")
        server.inference.infer(request)
        world.backends.gate.set()
        assert "unexpected inference input 'WRONG'" in (await answer).error.message

    asyncio.run(run())


def test_placeholder_passes_requests_on_once_its_model_is_loaded(world: Any) -> None:
    async def run() -> None:
        world.add("model", versions=(3,))
        server = await started(world)
        placeholder = server.inference.find("model", "")
        assert placeholder.is_placeholder
        request, answer = world.request_for("model")
        server.inference.infer_on(placeholder, request)
        await answer
        assert request.served_version == "3"
        late, late_answer = world.request_for("model")
        server.inference.infer_on(placeholder, late)  # a front end that was still reading the body
        assert (await late_answer).error is None
        child, child_answer = world.request_for("model")
        child.parent = late
        server.inference.infer_on(placeholder, child)  # the same for a call from inside a model
        assert (await asyncio.wait_for(child_answer, 2)).error is None
        assert world.backends.count == 1

    asyncio.run(run())


def test_ensemble_loads_its_composing_models(world: Any) -> None:
    async def run() -> None:
        world.add("inner")
        world.add_ensemble("outer", "inner")
        server = await started(world)
        response: InferenceResponse = await world.infer(server, "outer")
        assert response.error is None
        assert [model.name for model in server.registry.models.serving()] == ["inner", "outer"]

    asyncio.run(run())
