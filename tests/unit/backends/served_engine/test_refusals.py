"""A request that cannot be begun is answered with the code that fits, and the others of its batch are begun."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from trireme.backends.python.host.tensor_messages import error_message, error_of
from trireme.backends.python.pb_utils.errors import ErrorCode, PromptTooLong
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse, decode_response, encode_response
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.refusals import InvalidRequestError, begin_each, end_code, unknown_option
from trireme.core.errors import InvalidArgumentError, PromptTooLongError
from trireme.llm.adapters.adapter import AdapterError, UnknownAdapterError
from trireme.llm.admission_errors import EngineBusyError, EngineClosedError
from trireme.llm.request import FinishReason
from trireme.llm.sampling_params import LongPromptError, SamplingError
from trireme.llm.tokenizer.port import ChatError, TokenizerError


class Asked:
    """Both a request and the sender of its answer."""

    def __init__(self) -> None:
        self.answers: list[tuple[ErrorCode, str]] = []
        self.is_closed = False

    def get_response_sender(self) -> Asked:
        return self

    def send(self, response: InferenceResponse, flags: int) -> None:
        error = response.error()
        assert error is not None
        assert flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self.answers.append((ErrorCode(error.code()), error.message()))
        self.is_closed = True


def begin(*asked: Asked, errors: dict[Asked, Exception]) -> list[Any]:
    begun: list[Any] = []

    def one(request: Any, sender: Any) -> None:
        if request in errors:
            raise errors[request]
        begun.append(sender)

    begin_each(cast("list[InferenceRequest]", asked), one)
    return begun


def test_a_prompt_that_is_too_long_is_known_as_such_on_its_way_to_the_client_and_to_other_models() -> None:
    sent: list[InferenceResponse] = []

    class Sender(Asked):
        def send(self, response: InferenceResponse, flags: int) -> None:
            sent.append(response)
            super().send(response, flags)

    long, other = Sender(), Sender()
    begin(long, other, errors={long: LongPromptError("9 tokens"), other: SamplingError("the prompt has 9 tokens, ")})
    assert long.answers == [(ErrorCode.INVALID_ARG, "9 tokens")]
    at_server = [error_of(encode_response(response, None, ())[1]) for response in sent]
    assert [type(error) for error in at_server] == [PromptTooLongError, InvalidArgumentError]
    at_caller = decode_response(([], error_message(at_server[0]), None), None)
    assert isinstance(at_caller.error(), PromptTooLong)
    assert type(error_of(encode_response(at_caller, None, ())[1])) is PromptTooLongError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequestError("'n' is missing"), ErrorCode.INVALID_ARG),
        (SamplingError("'top_p' is 2"), ErrorCode.INVALID_ARG),
        (ChatError("no template"), ErrorCode.INVALID_ARG),
        (TokenizerError("no such token"), ErrorCode.INVALID_ARG),
        (EngineBusyError("too many wait"), ErrorCode.UNAVAILABLE),
        (EngineClosedError("closed"), ErrorCode.UNAVAILABLE),
        (UnknownAdapterError("no adapter 'x'"), ErrorCode.NOT_FOUND),
        (AdapterError("its file is cut off"), ErrorCode.INTERNAL),
    ],
)
def test_reason_has_its_code_and_the_batch_goes_on(
    error: Exception, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    first, refused, last = Asked(), Asked(), Asked()
    assert begin(first, refused, last, errors={refused: error}) == [first, last]
    assert refused.answers == [(code, str(error))]
    assert first.answers == last.answers == []
    assert caplog.records == []


def test_a_fault_of_ours_is_logged_and_told_as_internal(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    begin(asked, errors={asked: ZeroDivisionError()})
    assert asked.answers == [(ErrorCode.INTERNAL, "ZeroDivisionError")]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_request_that_was_answered_before_it_failed_gets_no_second_answer() -> None:
    asked = Asked()
    asked.is_closed = True
    begin(asked, errors={asked: EngineBusyError("too many wait")})
    assert asked.answers == []


def test_what_the_engine_ends_has_a_code_by_its_reason() -> None:
    assert end_code(FinishReason.CANCELLED) == ErrorCode.CANCELLED
    assert end_code(FinishReason.TIMEOUT) == ErrorCode.UNAVAILABLE
    assert end_code(FinishReason.ERROR) == ErrorCode.INTERNAL


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("temprature", "there is no option 'temprature'; did you mean 'temperature'?"),
        ("usage", "there is no option 'usage'; known are: messages, temperature"),
    ],
)
def test_an_unknown_option_is_told_the_near_one_or_all(name: str, told: str) -> None:
    assert str(unknown_option("option", name, {"temperature", "messages"})) == told
