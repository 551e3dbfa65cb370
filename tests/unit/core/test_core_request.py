"""A request tells its holder of a cancellation once; errors carry their kind and their sentence."""

from __future__ import annotations

from trireme.core.errors import ErrorKind, InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest


def test_cancel_tells_the_present_holder_exactly_once():
    request = InferenceRequest("m", "", "7", {}, lambda response: None)
    told = []
    request.on_cancel = told.append
    request.cancel()
    request.cancel()
    assert told == [request]
    assert request.is_cancelled


def test_cancel_without_a_holder_only_marks():
    request = InferenceRequest("m", "", "", {}, lambda response: None)
    request.cancel()
    assert request.is_cancelled


def test_an_error_is_described_with_its_code_in_words():
    assert InvalidArgumentError("no such input").described() == "Invalid argument: no such input"
    assert ServingError("x", ErrorKind.ALREADY_EXISTS).described() == "Already exists: x"


def test_a_request_error_names_the_request_or_says_it_is_unknown():
    error = InvalidArgumentError("bad").for_request("")
    assert error.message == "[request id: <id_unknown>] bad"
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    assert isinstance(error, InvalidArgumentError)
    assert error.for_request("9").message.startswith("[request id: 9] ")
