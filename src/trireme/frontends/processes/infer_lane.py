"""Inference requests that a front-end process has read: from its message to the model, and the answer back to it."""

from __future__ import annotations

import logging
from typing import Any

from trireme.core import errors
from trireme.core.errors import ErrorKind, InternalError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import GRPC_SERVICE
from trireme.frontends.inflight import LARGE_ANSWER_BYTES, ConnectionBytes, InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.line import Line, Message
from trireme.server.call import Calls
from trireme.server.single_response import SingleResponse

log = logging.getLogger(__name__)

ErrorMessage = tuple[str, int, str]
"""Class, kind and text of an error."""


class InferLane:
    """The requests of one process. What is not plain is sent back, to come again as bytes: nothing is decided here."""

    __slots__ = ("_calls", "_inflight", "_line", "_open")

    def __init__(self, calls: Calls, line: Line, inflight: InflightBytes) -> None:
        self._calls = calls
        self._line = line
        self._inflight = ConnectionBytes(inflight)
        self._open: dict[int, InferenceRequest] = {}

    @property
    def count(self) -> int:
        """Requests that are not answered."""
        return len(self._open)

    def begin(self, message: Message) -> None:
        """Starts the request (INFER)."""
        _, key, service, name, version, request_id, inputs, requested, settings = message
        calls = self._calls
        try:
            called = calls.open(name, version)
        except ServingError:
            self._line.send((messages.SEND_WHOLE, key))
            return
        if called.is_decoupled or called.is_loading or calls.tracing.is_on:
            self._line.send((messages.SEND_WHOLE, key))
            return
        tensors: dict[str, Tensor] = {}
        for tensor_name, datatype, shape, data in inputs:
            tensors[tensor_name] = Tensor(tensor_name, datatype, shape, data)
        call = _LaneCall(self, key, service)
        request = InferenceRequest(name, version, request_id, tensors, call.respond)
        request.requested_outputs = requested
        if settings is not None:
            _apply_settings(request, settings)
        self._open[key] = request
        try:
            called.start(request)
        except ServingError as error:
            self._end(key, messages.REFUSE, error)
        except Exception:
            log.exception("failed to answer a request of model '%s'", name)
            self._end(key, messages.REFUSE, InternalError("the server failed to answer the request"))

    def answer(self, key: int, response: InferenceResponse) -> None:
        """Sends the one response of a request, unless it was answered before or nobody waits for it."""
        request = self._open.get(key)
        if request is None:
            return
        if response.error is not None:
            self._end(key, messages.FAIL, response.error)
            return
        outputs = []
        size = 0
        for tensor in response.outputs:
            outputs.append((tensor.name, tensor.datatype, tensor.shape, tensor.data))
            size += len(tensor.data)
        if size > LARGE_ANSWER_BYTES and (excess := self._inflight.excess(size)):
            self._end(key, messages.FAIL, errors.UnavailableError(excess))
            return
        del self._open[key]
        self._line.send((messages.ANSWER, key, request.served_version, outputs, response.parameters))

    def fail_unsent(self, key: int) -> None:
        """The response could not be sent as a message: an error takes its place."""
        error = InternalError(
            "the response is too large to pass through a front-end process, or has parameters that cannot; a server "
            "with --frontend-processes=1 can send it"
        )
        self._line.send((messages.FAIL, key, encode_error(error)))

    def cancel(self, key: int) -> None:
        """Nobody waits for the request any more."""
        request = self._open.pop(key, None)
        if request is not None:
            request.cancel()

    def answer_rest(self, error: ServingError) -> None:
        """Answers everything that is open with the error, and cancels it."""
        for key, request in list(self._open.items()):
            self._end(key, messages.FAIL, error)
            request.cancel()

    def close(self) -> None:
        """The process is gone, and all who waited with it."""
        for key in list(self._open):
            self.cancel(key)

    def _end(self, key: int, kind: int, error: ServingError) -> None:
        if self._open.pop(key, None) is not None:
            self._line.send((kind, key, encode_error(error)))


class _LaneCall:
    """Takes the responses to one request."""

    __slots__ = ("_key", "_lane", "_service", "_single")

    def __init__(self, lane: InferLane, key: int, service: int) -> None:
        self._lane = lane
        self._key = key
        self._service = service
        self._single: SingleResponse | None = None

    @property
    def protocol(self) -> str:
        """How the client has asked, for those who record calls."""
        return "grpc" if self._service == GRPC_SERVICE else "http"

    def respond(self, response: InferenceResponse) -> None:
        if not response.is_final or response.is_empty or self._single is not None:
            if self._single is None:
                self._single = SingleResponse()
            single = self._single.take(response)
            if single is None:
                return
            response = single
        self._lane.answer(self._key, response)


def settings_of(request: InferenceRequest) -> tuple[Any, ...] | None:
    """What a request says besides its tensors, for INFER; None where that is nothing."""
    if not (request.parameters or request.correlation_id or request.flags or request.priority or request.timeout_us):
        return None
    return (request.correlation_id, request.flags, request.priority, request.timeout_us, request.parameters)


def _apply_settings(request: InferenceRequest, settings: tuple[Any, ...]) -> None:
    request.correlation_id, request.flags, request.priority, request.timeout_us, request.parameters = settings


def encode_error(error: ServingError) -> ErrorMessage:
    """The error for a message."""
    return type(error).__name__, int(error.kind), error.message


def decode_error(message: ErrorMessage) -> ServingError:
    """The error that was put into a message, of the same class where that is known to all."""
    name, kind, text = message
    found = getattr(errors, name, ServingError)
    is_ours = isinstance(found, type) and issubclass(found, ServingError)
    return (found if is_ours else ServingError)(text, ErrorKind(kind))
