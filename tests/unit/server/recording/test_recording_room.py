"""What a recording keeps: calls until they have arrived, and no more than there is room for."""

from __future__ import annotations

from typing import Any

import pytest
from recorder_stage import Stage

from trireme.core.errors import AlreadyExistsError, InternalError, InvalidArgumentError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.server.recording import recording as recording_module


@pytest.fixture
def stage() -> Stage:
    return Stage()


def ids(stage: Stage, received_count: int | None = None) -> list[str]:
    return [call.request_id for call in stage.recorder.fetch("", received_count)[0]]


def test_calls_are_kept_until_they_have_arrived(stage: Stage) -> None:
    recording = stage.recorder.start({})
    for name in ("a", "b", "c"):
        stage.ask(id=name)
        stage.models.answer()
    assert ids(stage, 0) == ["a", "b", "c"]
    assert ids(stage, 0) == ["a", "b", "c"]
    assert ids(stage, 2) == ["c"]
    stage.ask(id="d")
    stage.models.answer()
    stage.recorder.stop("")
    assert ids(stage, 2) == ["c", "d"]
    with pytest.raises(AlreadyExistsError):
        stage.recorder.start({})
    assert not recording.is_over
    for _ in range(2):
        assert ids(stage, 4) == []
        assert recording.is_over
    stage.recorder.start({})


@pytest.mark.parametrize("count", [-1, 0, 4, 2**70])
def test_more_or_less_than_what_was_sent_cannot_have_arrived(stage: Stage, count: int) -> None:
    stage.recorder.start({})
    for _ in range(3):
        stage.ask()
        stage.models.answer()
    ids(stage, 0)
    ids(stage, 1)
    with pytest.raises(InvalidArgumentError, match="between 1, which were told before, and 3, which were sent, not"):
        ids(stage, count)
    assert len(ids(stage, 1)) == 2


def test_what_has_not_arrived_takes_room(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BUFFER_CALLS", 2)
    recording = stage.recorder.start({})
    for _ in range(4):
        stage.ask()
        stage.models.answer()
        stage.recorder.fetch("", 0)
    assert (recording.call_count, recording.dropped_count) == (2, 2)
    stage.recorder.fetch("", 2)
    stage.ask()
    assert recording.call_count == 3


def test_calls_without_room_are_dropped_counted_and_served(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BUFFER_BYTES", 50)  # 4 of data and 16 of names, a datatype and a shape
    recording = stage.recorder.start({})
    for _ in range(5):
        stage.ask()
    assert (recording.call_count, recording.dropped_count) == (3, 2)
    for _ in range(5):
        stage.models.answer()
    assert len(stage.sent) == 5
    assert len(stage.recorder.fetch(recording.id)[0]) == 3
    stage.recorder.fetch(recording.id)
    stage.ask()
    assert recording.call_count == 4
    assert "trireme_recording_dropped_total 2" in stage.page()


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"p": "x" * 1000}},
        {"parameters": {"x" * 1000: 1}},
        {"id": "x" * 1000},
        {"correlation_id": "x" * 1000},
        {"requested_outputs": ("x" * 1000,)},
        {"name": "x" * 1000},
    ],
)
def test_texts_of_clients_take_room_as_tensors_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(recording_module, "BUFFER_BYTES", 2500)
    recording = stage.recorder.start({})
    for _ in range(5):
        stage.ask(**fields)
    assert (recording.call_count, recording.dropped_count) == (3, 2)
    for _ in range(5):
        stage.models.answer()
    for _ in range(2):
        stage.recorder.fetch(recording.id)
    stage.ask(**fields)
    assert recording.call_count == 4


def test_texts_of_answers_take_room_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BUFFER_BYTES", 2000)
    recording = stage.recorder.start({})
    stage.ask()
    for _ in range(5):
        stage.models.requests[0].respond(InferenceResponse([], parameters={"p": "x" * 1000}, is_final=False))
    stage.models.answer(InferenceResponse.of_error(InternalError("x" * 2000)))
    (call,) = stage.recorder.fetch(recording.id)[0]
    assert (len(call.responses), call.is_cut) == (2, True)


@pytest.mark.parametrize(
    "fields",
    [{"parameters": {"p": "x" * (17 << 20)}}, {"id": "x" * (17 << 20)}, {"requested_outputs": ("x" * (17 << 20),)}],
)
def test_a_call_with_more_text_than_a_frame_takes_is_named_and_takes_no_room(
    stage: Stage, fields: dict[str, Any]
) -> None:
    recording = stage.recorder.start({})
    for _ in range(9):
        stage.ask(**fields)
        stage.models.answer()
    calls = stage.recorder.fetch(recording.id)[0]
    assert (len(calls), recording.dropped_count) == (9, 0)
    call = calls[0]
    assert (call.model, call.parameters, call.inputs, call.request_id, call.outputs) == ("m", {}, (), "", ())
    assert call.unplayable.startswith("its names and parameters have 17825")


def test_a_small_view_does_not_keep_the_body_it_came_in(stage: Stage) -> None:
    body = bytes(1000)
    recording = stage.recorder.start({})
    for size in (4, 800):
        stage.ask(data=memoryview(body)[:size])  # type: ignore[arg-type]
        stage.models.answer()
    small, large = (call.inputs[0].data for call in stage.recorder.fetch(recording.id)[0])
    assert (type(small), bytes(small)) == (bytes, bytes(4))
    assert isinstance(large, memoryview)
    assert large.obj is body


def test_many_small_calls_are_bounded_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BUFFER_CALLS", 2)
    recording = stage.recorder.start({})
    for _ in range(3):
        stage.ask(data=b"")
    assert recording.dropped_count == 1


def test_large_calls_are_named_and_large_answers_cut(stage: Stage) -> None:
    recording = stage.recorder.start({"max_call_bytes": 8})
    stage.ask(data=b"123456789")
    stage.models.answer()
    stage.ask(data=b"1234")
    for letter in b"abc":
        response = InferenceResponse([Tensor("O", "INT32", (1,), bytes([letter]) * 6)], is_final=letter == ord("c"))
        stage.models.requests[0].respond(response)
    large, cut = stage.recorder.fetch(recording.id)[0]
    assert large.unplayable == "its inputs have 9 bytes, more than a recorded call may have"
    assert [bytes(tensor.data) for tensor in large.inputs] == [b""]
    assert (len(cut.responses), cut.is_cut) == (2, True)


def test_a_long_stream_takes_no_more_than_its_share(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BUFFER_BYTES", 2000)
    recording = stage.recorder.start({})
    stage.ask()
    for _ in range(100):
        stage.models.requests[0].respond(InferenceResponse([Tensor("O", "INT32", (1,), b"1111")], is_final=False))
    stage.models.answer()
    assert len(stage.sent) == 101
    (call,) = stage.recorder.fetch(recording.id)[0]
    assert (len(call.responses), call.is_cut, call.is_finished) == (7, True, True)
