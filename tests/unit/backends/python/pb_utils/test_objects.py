"""Requests, responses and errors as a model makes them: what is taken and what is refused, and how."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import triton_python_backend_utils as pb_utils

TENSOR = pb_utils.Tensor("X", np.zeros(2))


def make_request(**changes: Any) -> pb_utils.InferenceRequest:
    arguments: dict[str, Any] = {"model_name": "m", "inputs": [], "requested_output_names": []}
    return pb_utils.InferenceRequest(**(arguments | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": None},
        {"inputs": [1]},
        {"inputs": "abc"},
        {"model_name": None},
        {"requested_output_names": None},
        {"requested_output_names": [None]},
        {"requested_output_names": "abc"},
        {"request_id": None},
        {"correlation_id": None},
        {"model_version": None},
        {"model_version": "1"},
        {"flags": None},
        {"timeout": None},
        {"timeout": -1},
        {"preferred_memory": None},
        {"trace": None},
    ],
)
def test_request_with_an_argument_of_the_wrong_type_is_a_type_error(changes: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        make_request(**changes)


@pytest.mark.parametrize("missing", ["inputs", "model_name", "requested_output_names"])
def test_request_without_a_required_argument_is_a_type_error(missing: str) -> None:
    arguments: dict[str, Any] = {"model_name": "m", "inputs": [], "requested_output_names": []}
    del arguments[missing]
    with pytest.raises(TypeError):
        pb_utils.InferenceRequest(**arguments)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inputs": [None]}, "Input tensor for request with id '' and model name 'm' should not be empty."),
        (
            {"requested_output_names": [""], "request_id": "7"},
            "Requested output name for request with id '7' and model name 'm' should not be empty.",
        ),
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        ({"parameters": {1: 2}}, "Expect parameters keys to have type str, found type <class 'int'>"),
        (
            {"parameters": {"a": 2.5}},
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
        (
            {"parameters": {"a": None}},
            "Expect parameters values to have type bool/int/str, found type <class 'NoneType'>",
        ),
        ({"parameters": []}, "Expect parameters to have type dict, found type <class 'list'>"),
    ],
)
def test_request_with_unfit_content_is_refused_in_tritons_words(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(pb_utils.TritonModelException) as caught:
        make_request(**changes)
    assert str(caught.value) == text


def test_made_request_gives_back_what_it_was_made_of() -> None:
    request = make_request(
        inputs=[TENSOR],
        requested_output_names=("A", "B"),
        request_id="7",
        correlation_id="seq",
        flags=3,
        timeout=9,
        parameters={"a": 1, "b": True, "c": "x"},
    )
    assert request.inputs() == [TENSOR]
    assert request.requested_output_names() == {"A", "B"}
    assert (request.request_id(), request.correlation_id()) == ("7", "seq")
    assert (request.flags(), request.timeout()) == (3, 9)
    assert json.loads(request.parameters()) == {"a": 1, "b": True, "c": "x"}
    assert request.trace().get_context() is None
    assert request.is_cancelled() is False
    request.set_flags(1)
    assert request.flags() == 1


def test_defaults_of_a_made_request() -> None:
    request = make_request()
    assert (request.request_id(), request.correlation_id(), request.flags(), request.timeout()) == ("", 0, 0, 0)
    assert request.parameters() == "{}"


def test_calls_outside_of_a_model_say_so() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="does not run one of its models"):
        make_request().exec()
    with pytest.raises(pb_utils.TritonModelException, match="does not run one of its models"):
        pb_utils.load_model("other")
    with pytest.raises(pb_utils.TritonModelException, match="does not run one of its models"):
        pb_utils.get_model_dir()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"output_tensors": None}, TypeError),
        ({"output_tensors": [1]}, TypeError),
        ({"output_tensors": [], "error": "text"}, TypeError),
        ({"output_tensors": [None]}, pb_utils.TritonModelException),
        ({"output_tensors": [], "parameters": {"a": 1.5}}, pb_utils.TritonModelException),
        ({"output_tensors": [], "parameters": {1: 1}}, pb_utils.TritonModelException),
    ],
)
def test_unfit_responses_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        pb_utils.InferenceResponse(**arguments)


def test_missing_output_tensor_is_refused_in_tritons_words() -> None:
    with pytest.raises(pb_utils.TritonModelException, match=r"^Output tensor for inference response should not be"):
        pb_utils.InferenceResponse([None])  # type: ignore[list-item]


def test_response_gives_back_what_it_was_made_of() -> None:
    response = pb_utils.InferenceResponse((TENSOR,), parameters={"n": 1})
    assert response.output_tensors() == [TENSOR]
    assert not response.has_error()
    assert response.error() is None
    assert json.loads(response.parameters()) == {"n": 1}
    assert pb_utils.InferenceResponse().output_tensors() == []


def test_response_keeps_its_tensors_when_the_list_is_used_again() -> None:
    tensors = [TENSOR]
    response = pb_utils.InferenceResponse(tensors)
    tensors.clear()
    assert response.output_tensors() == [TENSOR]


def test_error_response_carries_message_and_code() -> None:
    response = pb_utils.InferenceResponse([], pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND))
    error = response.error()
    assert response.has_error()
    assert error is not None
    assert (error.message(), error.code(), int(error.code())) == ("no", pb_utils.TritonError.NOT_FOUND, 2)
    assert pb_utils.TritonError("x").code() == pb_utils.TritonError.INTERNAL


@pytest.mark.parametrize("arguments", [(), (None,), ("x", None), ("x", 99), ("x", "y")])
def test_unfit_errors_are_type_errors(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        pb_utils.TritonError(*arguments)


def test_preferred_memory_takes_the_memory_types_only() -> None:
    make_request(preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0))
    with pytest.raises(TypeError):
        pb_utils.PreferredMemory(1)  # type: ignore[arg-type]
