"""Requests that an engine does not begin: each is answered with the reason and the code that fits it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from trireme.backends.python.pb_utils.errors import ErrorCode, PromptTooLong, TritonError
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.core.close_names import NEAR, closest
from trireme.llm.adapters.adapter import AdapterError, UnknownAdapterError
from trireme.llm.admission_errors import EngineBusyError, EngineClosedError
from trireme.llm.grammar.compile_check_queue import CheckUnavailableError
from trireme.llm.request import FinishReason
from trireme.llm.sampling_params import LongPromptError, SamplingError
from trireme.llm.tokenizer.port import ChatError, TokenizerError

log = logging.getLogger(__name__)


class InvalidRequestError(ValueError):
    """A request that cannot be followed; the text names the field."""


def unknown_option(kind: str, name: str, known: Iterable[str]) -> InvalidRequestError:
    """Of a request that brings an option, or what else its `kind` is called, that nobody knows."""
    names = sorted(known)
    near = closest(name, names, NEAR)
    told = f"did you mean '{near}'?" if near is not None else f"known are: {', '.join(names)}"
    return InvalidRequestError(f"there is no {kind} '{name:.100}'; {told}")


_CODES: tuple[tuple[tuple[type[Exception], ...], ErrorCode], ...] = (
    ((InvalidRequestError, SamplingError, ChatError, TokenizerError), ErrorCode.INVALID_ARG),
    ((EngineBusyError, EngineClosedError, CheckUnavailableError), ErrorCode.UNAVAILABLE),
    ((UnknownAdapterError,), ErrorCode.NOT_FOUND),
    ((AdapterError,), ErrorCode.INTERNAL),
)
_END_CODES = {
    FinishReason.CANCELLED: ErrorCode.CANCELLED,
    FinishReason.TIMEOUT: ErrorCode.UNAVAILABLE,
    FinishReason.UNFOLLOWED: ErrorCode.INVALID_ARG,
}


def begin_each(
    requests: Iterable[InferenceRequest], begin: Callable[[InferenceRequest, InferenceResponseSender], None]
) -> None:
    """Hands the requests of a batch over, one by one; those that cannot be begun are refused."""
    for request in requests:
        sender = request.get_response_sender()
        begin_or_refuse(sender, partial(begin, request, sender))


def begin_or_refuse(sender: InferenceResponseSender, begin: Callable[[], None]) -> None:
    """Answers a request that cannot be begun with the reason; what fails is of this request alone, as others of its
    batch run already."""
    try:
        begin()
    except Exception as error:
        refuse(sender, error)


def refuse(sender: InferenceResponseSender, error: Exception) -> None:
    """Answers a request that cannot be begun, unless it was answered."""
    code = code_of(error, "a request cannot be read")
    if not sender.is_closed:
        sender.send(refusal(error, code), TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def code_of(error: Exception, what: str) -> ErrorCode:
    """Of an error for which a request cannot be begun; one that nobody has thought of is logged, and our own."""
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), None)
    if code is None:
        log.error(what, exc_info=error)
    return code or ErrorCode.INTERNAL


def refusal(error: Exception, code: ErrorCode) -> InferenceResponse:
    """The answer to a request that cannot be followed."""
    if isinstance(error, LongPromptError):
        return InferenceResponse(error=PromptTooLong(str(error)))
    return InferenceResponse(error=TritonError(str(error) or type(error).__name__, code))


def end_code(reason: FinishReason) -> ErrorCode:
    """Of a request that the engine ended before its answer was whole."""
    return _END_CODES.get(reason, ErrorCode.INTERNAL)
