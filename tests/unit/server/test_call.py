"""Whole calls: what front ends may know of a model, and what a call makes of output_parameters and traces."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory as ClientMemory
from typing import Any

import pytest

from trireme.config.options.trace import TraceSettings
from trireme.core.errors import InternalError, NotFoundError
from trireme.core.request import OutputParameters, RegionPlace
from trireme.core.response import InferenceResponse
from trireme.server.call import Calls
from trireme.server.shared_memory import SharedMemory
from trireme.server.single_response import SingleResponse
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Arrival, Tracing


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    client = ClientMemory(f"trireme-test-{uuid.uuid4().hex}", create=True, size=64)
    shared = SharedMemory(is_allowed=True)
    shared.register_system("region", client.name, 0, 64)
    yield shared
    client.close()
    client.unlink()


def calls_of(server: Any, memory: SharedMemory) -> Calls:
    return Calls(server.inference, Tracing(TraceSettingsStore(TraceSettings())), memory)


def test_a_call_knows_the_model_before_its_body_is_read(world: Any, memory: SharedMemory) -> None:
    async def story() -> None:
        world.add("model")
        calls = calls_of(await world.started(), memory)
        call = calls.open("model", "")
        assert (call.is_decoupled, call.is_loading) == (False, False)
        assert [(name, datatype) for name, datatype, _ in call.inputs()] == [("IN", "FP32")]
        with pytest.raises(NotFoundError, match="unknown model: 'other' is not found"):
            calls.open("other", "")

    asyncio.run(story())


def test_output_parameters_get_their_memory_when_the_call_starts(world: Any, memory: SharedMemory) -> None:
    async def story() -> None:
        world.add("model")
        calls = calls_of(await world.started(), memory)
        request, answer = world.request_for("model")
        shared = request.output_parameters = OutputParameters({}, {"OUT": RegionPlace("region", 0, 64)})
        calls.open("model", "").start(request)
        response = await asyncio.wait_for(answer, 2)
        assert response.error is None
        assert [bytes(tensor.data) for tensor in response.outputs] == [b""] * len(response.outputs)
        assert shared.targets == {}  # equal requests share their output_parameters

    asyncio.run(story())


def test_a_region_that_does_not_exist_refuses_the_call(world: Any, memory: SharedMemory) -> None:
    async def story() -> None:
        world.add("model")
        calls = calls_of(await world.started(), memory)
        request, _ = world.request_for("model")
        request.output_parameters = OutputParameters({}, {"OUT": RegionPlace("nowhere", 0, 64)})
        with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'nowhere'"):
            calls.open("model", "").start(request)

    asyncio.run(story())


def test_a_request_that_arrives_to_be_explained_is_traced(world: Any, memory: SharedMemory) -> None:
    async def story() -> None:
        world.add("model")
        calls = calls_of(await world.started(), memory)
        request, answer = world.request_for("model")
        calls.open("model", "").start(request, Arrival("IN", "IN_DONE", 5, wants_explanation=True))
        await asyncio.wait_for(answer, 2)
        assert request.trace.marks[:2] == [("IN", 5), ("IN_DONE", 5)]
        assert request.trace.marks[-1][0] == "REQUEST_END"

    asyncio.run(story())


def test_one_response_is_taken_out_of_what_a_model_sends() -> None:
    response, mark = InferenceResponse([], is_final=False), InferenceResponse.final_mark()
    single = SingleResponse()
    assert single.take(response) is None
    assert single.take(mark) is response


@pytest.mark.parametrize(("count", "text"), [(0, "got 0"), (2, "got 2")])
def test_none_or_several_responses_are_an_error(count: int, text: str) -> None:
    single = SingleResponse()
    for _ in range(count):
        assert single.take(InferenceResponse([], is_final=False)) is None
    last = single.take(InferenceResponse.final_mark())
    assert last is not None
    assert last.error is not None
    assert last.error.message == f"expected a single response, {text}"


def test_an_error_at_the_end_is_what_the_client_is_told() -> None:
    single = SingleResponse()
    single.take(InferenceResponse([], is_final=False))
    failed = InferenceResponse.of_error(InternalError("boom"))
    assert single.take(failed) is failed


def test_calls_of_one_copy_share_what_they_ask_and_those_of_the_next_do_not(world: Any, memory: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await world.started(control_mode="explicit", startup_models=("model",))
        calls = calls_of(server, memory)
        first = calls.open("model", "")
        assert calls.open("model", "1") is first
        copy = server.inference.find("model", "")
        (world.repository / "model" / "1" / "model.py").write_text("other")
        await server.registry.load("model", None, {})
        await world.settle(lambda: not server.registry.models.draining)
        assert calls.open("model", "") is not first
        assert copy.called is None  # or the two would keep each other

    asyncio.run(scenario())
