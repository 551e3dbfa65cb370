"""Calls from a model to other models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.host.calls import BlsCalls
from trireme.core.errors import ErrorKind, NotFoundError, NotReadyError, ServingError, UnavailableError
from trireme.core.request import InferenceRequest, StepRequest, notify_calling_steps
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor


class Inference:
    """Implements `InferencePort` by remembering, or refusing."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.requests: list[InferenceRequest] = []
        self.refusal = refusal

    def infer(self, request: InferenceRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)


def form(parent_key: int = 1, data: Any = b"\0\0\0\0") -> tuple[Any, ...]:
    return (parent_key, "id7", [("IN", "FP32", (1,), data)], ["OUT"], 42, 1, 500, {"a": True}, None)


def call(number: int, is_decoupled: bool = False, version: Any = -1) -> tuple[Any, ...]:
    return (messages.CALL, number, "other", version, form(), is_decoupled, 1)


def output(size: int = 4) -> InferenceResponse:
    return InferenceResponse([Tensor("OUT", "FP32", (size // 4,), bytes(size))], None, {"p": 1})


def test_a_call_becomes_a_request_with_all_that_the_model_said(make: SimpleNamespace) -> None:
    inference, parent = Inference(), make.request()
    calls = BlsCalls(make.link(), inference, None, {1: parent}.get)
    calls.on_call(call(9))
    (request,) = inference.requests
    assert (request.model_name, request.model_version, request.id) == ("other", "", "id7")
    assert request.inputs["IN"].data == b"\0\0\0\0"
    assert request.requested_outputs == ("OUT",)
    assert (request.correlation_id, request.flags, request.timeout_us, request.arrival_ns) == (42, 1, 500, 1)
    assert request.parameters == {"a": True}
    assert request.parent is parent


def test_a_call_from_one_of_several_requests_still_counts_as_made_by_an_execution(make: SimpleNamespace) -> None:
    inference = Inference()
    BlsCalls(make.link(), inference, None, {}.get).on_call(call(9))
    assert inference.requests[0].parent is not None
    assert not inference.requests[0].parent.is_cancelled


def test_the_steps_that_wait_for_a_call_are_told_of_it(make: SimpleNamespace) -> None:
    told: list[str] = []
    steps = [StepRequest("m", "", "", {}, _ignore, told.append) for _ in range(2)]
    BlsCalls(make.link(), Inference(), None, {1: steps[0]}.get).on_call(call(9))
    assert told == ["other"]
    inference = Inference()
    BlsCalls(make.link(), inference, None, {}.get, lambda: steps).on_call(call(9))
    assert len(told) >= 3, "each of those that may have made it"
    notify_calling_steps("further", inference.requests[0])
    assert told[-1] == "further"


def _ignore(_response: InferenceResponse) -> None:
    pass


def test_a_version_is_passed_on_as_text(make: SimpleNamespace) -> None:
    inference = Inference()
    calls = BlsCalls(make.link(), inference, None, {}.get)
    calls.on_call(call(1, version=3))
    assert inference.requests[0].model_version == "3"


def test_the_answer_goes_back_and_ends_the_call(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    calls = BlsCalls(link, inference, None, {}.get)
    calls.on_call(call(9))
    inference.requests[0].respond(output())
    expected = ([("OUT", "FP32", (1,), bytes(4))], None, {"p": 1})
    assert link.sent == [(messages.CALL_RESPONSE, 9, expected, True)]
    inference.requests[0].respond(output())
    assert len(link.sent) == 1


def test_a_large_answer_goes_through_shared_memory(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    calls = BlsCalls(link, inference, None, {}.get)
    calls.on_call(call(9))
    inference.requests[0].respond(output(400_000))
    assert link.sent[0][2][0][0][3] == (1, 64, 400_000)


def test_a_decoupled_call_gets_every_response_and_the_final_mark(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    calls = BlsCalls(link, inference, None, {}.get)
    calls.on_call(call(9, is_decoupled=True))
    first = output()
    first.is_final = False
    inference.requests[0].respond(first)
    inference.requests[0].respond(InferenceResponse.final_mark())
    assert [message[3] for message in link.sent] == [False, True]
    assert link.sent[1][2] is None


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (NotFoundError("no"), "Failed for execute the inference request. Model 'other' is not ready."),
        (NotReadyError("not yet"), "Failed for execute the inference request. Model 'other' is not ready."),
        (UnavailableError("full"), "full"),
    ],
)
def test_a_refused_call_says_so_the_way_triton_does(make: SimpleNamespace, refusal: ServingError, reason: str) -> None:
    link = make.link()
    BlsCalls(link, Inference(refusal), None, {}.get).on_call(call(9))
    ((_, number, (_, error, _), is_final),) = link.sent
    text = f"Model other - Error when running inference: {reason}"
    assert (number, error, is_final) == (9, (int(ErrorKind.INTERNAL), text), True)


def test_an_error_of_the_called_model_keeps_its_text_and_kind(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    BlsCalls(link, inference, None, {}.get).on_call(call(9))
    inference.requests[0].respond(InferenceResponse.of_error(UnavailableError("busy")))
    assert link.sent[0][2][1] == (int(ErrorKind.UNAVAILABLE), "busy")


def test_calling_a_decoupled_model_for_one_response_is_refused(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    BlsCalls(link, inference, lambda name, version: True, {}.get).on_call(call(9))
    assert inference.requests == []
    text = link.sent[0][2][1][1]
    assert text.startswith(
        "Model other - Error when running inference: Model other is using the decoupled. The current"
    )
    assert text.endswith("for decoupled models.'")


def test_a_stream_where_one_response_was_asked_for_is_refused_and_cancelled(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    BlsCalls(link, inference, None, {}.get).on_call(call(9))
    first = output()
    first.is_final = False
    inference.requests[0].respond(first)
    assert "is using the decoupled" in link.sent[0][2][1][1]
    assert link.sent[0][3] is True
    assert inference.requests[0].is_cancelled
    inference.requests[0].respond(output())
    assert len(link.sent) == 1


def test_cancelling_reaches_the_called_model(make: SimpleNamespace) -> None:
    inference = Inference()
    calls = BlsCalls(make.link(), inference, None, {}.get)
    calls.on_call(call(9))
    calls.on_cancel((messages.CALL_CANCEL, 8))
    assert not inference.requests[0].is_cancelled
    calls.on_cancel((messages.CALL_CANCEL, 9))
    assert inference.requests[0].is_cancelled


def test_a_cancelled_parent_cancels_its_children_and_no_others(make: SimpleNamespace) -> None:
    inference, parents = Inference(), {1: make.request(), 2: make.request()}
    calls = BlsCalls(make.link(), inference, None, parents.get)
    calls.on_call(call(9))
    calls.on_call((messages.CALL, 10, "other", -1, form(parent_key=2), False, 1))
    calls.cancel_children(parents[1])
    assert [request.is_cancelled for request in inference.requests] == [True, False]


def test_a_call_of_a_parent_already_cancelled_is_cancelled_at_once(make: SimpleNamespace) -> None:
    inference, parent = Inference(), make.request()
    parent.cancel()
    BlsCalls(make.link(), inference, None, {1: parent}.get).on_call(call(9))
    assert inference.requests[0].is_cancelled


def test_the_calls_of_a_dead_worker_are_cancelled_and_their_answers_dropped(make: SimpleNamespace) -> None:
    inference, link = Inference(), make.link()
    calls = BlsCalls(link, inference, None, {}.get)
    calls.on_call(call(9))
    calls.close()
    assert inference.requests[0].is_cancelled
    inference.requests[0].respond(output())
    assert link.sent == []
