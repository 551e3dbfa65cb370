"""Recordings on the server's side: what is taken, what it costs, who ends them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory as ClientMemory
from typing import Any

import pytest
from recorder_stage import Stage

from trireme.config.options.trace import TraceSettings
from trireme.core.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from trireme.core.request import OutputParameters, RegionPlace
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.server.call import Calls
from trireme.server.recording.recorder import Recorder
from trireme.server.shared_memory import SharedMemory
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_call_is_recorded_with_its_answer(stage: Stage) -> None:
    recording = stage.recorder.start({})
    stage.now_ns = 5
    request = stage.ask(
        id="r", model_version="3", parameters={"p": 1}, priority=2, timeout_us=9, requested_outputs=("OUT",)
    )
    stage.now_ns = 25
    stage.models.answer()
    calls, same = stage.recorder.fetch(recording.id)
    (call,) = calls
    assert same is recording
    assert (call.at_ns, call.model, call.version, call.served_version, call.request_id) == (5, "m", "3", "3", "r")
    assert (call.parameters, call.priority, call.timeout_us, call.outputs) == ({"p": 1}, 2, 9, ("OUT",))
    assert bytes(call.inputs[0].data) == b"1234"
    assert [(r.after_ns, bytes(r.outputs[0].data)) for r in call.responses] == [(20, b"abcd")]
    assert len(stage.sent) == 1
    assert request.respond is not stage.sent.append


def test_a_response_that_cannot_be_recorded_is_passed_on(stage: Stage, caplog: Any) -> None:
    recording = stage.recorder.start({})
    stage.ask()
    odd: Any = {1: "a name that is no text"}
    response = InferenceResponse([], parameters=odd)
    stage.models.answer(response)
    assert stage.sent == [response]
    (call,) = stage.recorder.fetch(recording.id)[0]
    assert call.is_cut
    assert "a response of model 'm' could not be recorded" in caplog.text


def test_outputs_are_copied_because_their_memory_is_used_again(stage: Stage) -> None:
    recording = stage.recorder.start({})
    stage.ask()
    memory = bytearray(b"abcd")
    stage.models.answer(InferenceResponse([Tensor("OUT", "INT32", (1,), memoryview(memory))]))
    memory[:] = b"zzzz"
    (call,) = stage.recorder.fetch(recording.id)[0]
    assert bytes(call.responses[0].outputs[0].data) == b"abcd"


def test_streams_and_errors_are_recorded_as_they_come(stage: Stage) -> None:
    recording = stage.recorder.start({})
    stage.ask()
    stage.models.requests[0].respond(InferenceResponse([Tensor("O", "INT32", (1,), b"1111")], is_final=False))
    assert stage.recorder.fetch(recording.id)[0] == []
    stage.models.requests[0].respond(InferenceResponse.of_error(InternalError("boom")))
    stage.models.refusal = InvalidArgumentError("no")
    with pytest.raises(InvalidArgumentError):
        stage.ask()
    first, second = stage.recorder.fetch(recording.id)[0]
    assert [(len(r.outputs), r.error, r.error_kind) for r in first.responses] == [
        (1, None, ""),
        (0, "boom", "Internal"),
    ]
    assert second.error == "no"


def test_nothing_is_in_the_way_before_and_after(stage: Stage) -> None:
    assert stage.switch.recorder is None
    recording = stage.recorder.start({"limit": 2})
    assert stage.switch.recorder is stage.recorder
    stage.ask()
    assert stage.switch.recorder is stage.recorder
    stage.ask()
    assert stage.switch.recorder is None
    stage.ask()
    for _ in range(3):
        stage.models.answer()
    assert recording.end_reason == "2 requests are recorded, which is its limit"
    assert len(stage.recorder.fetch(recording.id)[0]) == 2
    assert not recording.is_over
    assert stage.recorder.fetch(recording.id)[0] == []
    assert recording.is_over


def test_limit_of_size(stage: Stage) -> None:
    recording = stage.recorder.start({"max_bytes": 6})
    stage.ask()
    assert not recording.end_reason
    stage.ask()
    assert recording.end_reason == "8 bytes are recorded, and its limit is 6"


def test_time_is_up(stage: Stage) -> None:
    recording = stage.recorder.start({"duration_s": 10})
    stage.pass_time(9)
    stage.recorder.fetch(recording.id)
    assert stage.switch.recorder is not None
    stage.pass_time(2)
    assert recording.end_reason == "its 10 s are over"
    assert stage.switch.recorder is None


def test_a_recording_that_nobody_fetches_ends_and_is_forgotten(stage: Stage, caplog: Any) -> None:
    with caplog.at_level(logging.INFO):
        recording = stage.recorder.start({})
        stage.ask()
        stage.pass_time(31)
    assert stage.switch.recorder is None
    assert "recording ended: nobody has fetched from it for 30 s; 1 of 1 requests recorded" in caplog.text
    assert stage.recorder.status() == {"is_allowed": True, "is_active": False}
    assert stage.timers == []
    with pytest.raises(NotFoundError):
        stage.recorder.fetch(recording.id)
    stage.models.answer()
    assert len(stage.sent) == 1
    assert stage.recorder.start({}).id != recording.id


def test_stopping_waits_a_little_for_what_is_under_way(stage: Stage) -> None:
    recording = stage.recorder.start({})
    stage.ask()
    stage.ask()
    assert stage.recorder.stop(recording.id)["recorded"] == 2
    assert stage.switch.recorder is None
    stage.models.answer()
    assert [call.is_finished for call in stage.recorder.fetch(recording.id)[0]] == [True]
    assert not recording.is_over
    stage.now_ns += 6_000_000_000
    (late,) = stage.recorder.fetch(recording.id)[0]
    assert (late.is_finished, late.responses) == (False, ())
    assert stage.recorder.fetch(recording.id)[0] == []
    assert recording.is_over
    stage.models.answer()
    assert len(stage.sent) == 2


def test_one_that_has_ended_and_is_not_fetched_makes_way(stage: Stage) -> None:
    first = stage.recorder.start({})
    stage.ask()
    stage.models.answer()
    stage.recorder.stop("")
    with pytest.raises(AlreadyExistsError):
        stage.recorder.start({})
    stage.now_ns += 3_000_000_000
    second = stage.recorder.start({})
    assert second.id != first.id
    assert stage.switch.recorder is stage.recorder
    with pytest.raises(NotFoundError):
        stage.recorder.fetch(first.id)


def test_what_is_discarded_makes_way_at_once(stage: Stage) -> None:
    first = stage.recorder.start({})
    stage.ask()
    assert stage.recorder.stop(first.id, is_discarded=True)["recorded"] == 1
    assert stage.recorder.start({}).id != first.id
    stage.models.answer()
    assert len(stage.sent) == 1


def test_one_look_at_the_time_is_due_however_often_recordings_begin(stage: Stage) -> None:
    for _ in range(3):
        recording = stage.recorder.start({"duration_s": 5})
        stage.recorder.stop(recording.id, is_discarded=True)
    recording = stage.recorder.start({"duration_s": 5})
    assert len(stage.timers) == 1
    stage.pass_time(6)
    assert recording.end_reason == "its 5 s are over"


def test_sampling_by_dice(stage: Stage) -> None:
    recording = stage.recorder.start({"sample": 0.4})
    for dice in (0.1, 0.39, 0.4, 0.9):
        stage.dice = dice
        stage.ask()
    assert (recording.seen_count, recording.call_count) == (4, 2)


def test_only_the_models_asked_for(stage: Stage) -> None:
    recording = stage.recorder.start({"models": ["a"]})
    stage.ask(name="a")
    stage.ask(name="b")
    assert recording.call_count == 1


def test_without_answers(stage: Stage) -> None:
    recording = stage.recorder.start({"answers": False})
    stage.ask()
    stage.models.answer()
    (call,) = stage.recorder.fetch(recording.id)[0]
    assert (call.has_answer, call.responses) == (False, ())


def test_one_at_a_time_and_only_where_it_is_allowed(stage: Stage, caplog: Any) -> None:
    stage.recorder.start({})
    with pytest.raises(AlreadyExistsError, match="recording already"):
        stage.recorder.start({})
    with pytest.raises(NotFoundError):
        stage.recorder.stop("another")
    with pytest.raises(NotFoundError):
        stage.recorder.fetch("another")
    locked = Stage(is_allowed=False)
    with pytest.raises(UnsupportedError, match="--allow-recording=true"):
        locked.recorder.start({})
    assert "start a recording of all requests to all models: failed" in caplog.text
    assert locked.page() == ""
    assert locked.switch.recorder is None


def test_metrics_say_that_it_runs(stage: Stage) -> None:
    assert "trireme_recording_active 0" in stage.page()
    recording = stage.recorder.start({"sample": 0.6})
    stage.ask()
    assert "trireme_recording_active 1" in stage.page()
    stage.recorder.stop("")
    stage.models.answer()
    stage.recorder.fetch(recording.id)
    page = stage.page()
    assert "trireme_recording_active 0" in page
    assert "trireme_recorded_requests_total 1" in page


@pytest.fixture
def memory() -> Iterator[tuple[SharedMemory, ClientMemory]]:
    client = ClientMemory(f"trireme-test-{uuid.uuid4().hex}", create=True, size=64)
    shared = SharedMemory(is_allowed=True)
    shared.register_system("region", client.name, 0, 64)
    yield shared, client
    client.close()
    client.unlink()


def test_outputs_in_shared_memory_are_recorded_too(world: Any, memory: tuple[SharedMemory, ClientMemory]) -> None:
    shared, client = memory

    async def story() -> None:
        world.add("model")
        server = await world.started()
        calls = Calls(server.inference, Tracing(TraceSettingsStore(TraceSettings())), shared)
        recorder = Recorder(server.inference, shared, is_allowed=True)
        recorder.switch = calls
        recording = recorder.start({})
        request, answer = world.request_for("model")
        request.output_parameters = OutputParameters({}, {"OUT": RegionPlace("region", 0, 64)})
        calls.open("model", "").start(request)
        response = await asyncio.wait_for(answer, 2)
        assert [bytes(tensor.data) for tensor in response.outputs] == [b""]
        (call,) = recorder.fetch(recording.id)[0]
        kept = bytes(call.responses[0].outputs[0].data)
        assert kept
        assert kept == bytes(client.buf[: len(kept)])
        assert call.shared_memory == ("OUT",)

    asyncio.run(story())
