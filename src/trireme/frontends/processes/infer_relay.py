"""Inference requests that a front-end process has read: from its message to the model, and the answer back to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from trireme.core import errors
from trireme.core.errors import ErrorKind, InternalError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import GRPC_SERVICE
from trireme.frontends.inflight import CHARGED_FROM_BYTES, LARGE_ANSWER_BYTES, ConnectionBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.large_answers import LargeAnswers
from trireme.frontends.processes.process_link import Message, ProcessLink
from trireme.frontends.processes.relayed_transport import RelayedTransport
from trireme.server.call import Calls
from trireme.server.long_work import ShortSteps, is_long_json, json_memory_bytes
from trireme.server.single_response import SingleResponse

log = logging.getLogger(__name__)

ErrorMessage = tuple[str, int, str]
"""Class, kind and text of an error."""


class InferRelay:
    """The requests of one process. What is not plain is sent back, to come again as bytes: nothing is decided here."""

    __slots__ = ("_calls", "_large", "_leaving", "_link", "_open", "_transports", "demands")

    def __init__(self, calls: Calls, link: ProcessLink, transports: Mapping[int, RelayedTransport]) -> None:
        self._calls = calls
        self._link = link
        self._transports = transports
        self._large = LargeAnswers(link)
        self._leaving = ShortSteps()
        self._open: dict[int, _RelayedCall] = {}
        self.demands: dict[str, int] = {}
        """By the name of the model, requests since somebody looked, who takes away what was counted."""

    @property
    def count(self) -> int:
        """Requests that are not answered."""
        return len(self._open)

    def begin(self, message: Message) -> None:
        """Starts the request (INFER)."""
        _, key, number, service, name, version, request_id, inputs, requested, settings, is_json = message
        calls = self._calls
        transport = self._transports.get(number)
        if transport is None:
            return  # the client is gone, or about to be
        try:
            called = calls.open(name, version)
        except ServingError:
            self._link.send((messages.SEND_WHOLE, key))
            return
        if called.is_decoupled or called.is_loading or calls.tracing.is_on:
            self._link.send((messages.SEND_WHOLE, key))
            return
        self.demands[name] = self.demands.get(name, 0) + 1
        tensors: dict[str, Tensor] = {}
        size = 0
        for tensor_name, datatype, shape, data in inputs:
            tensors[tensor_name] = Tensor(tensor_name, datatype, shape, data)
            size += len(data)
        inflight = transport.inflight
        if size <= CHARGED_FROM_BYTES:
            size = 0
        elif inflight.excess(size):
            self._link.send((messages.SEND_WHOLE, key))
            return
        call = _RelayedCall(self, key, service, inflight, size, is_json)
        request = call.request = InferenceRequest(name, version, request_id, tensors, call.respond)
        request.requested_outputs = requested
        if settings is not None:
            _apply_settings(request, settings)
        self._open[key] = call
        if size:
            inflight.hold(size)
        try:
            called.start(request)
        except ServingError as error:
            self._end(key, messages.REFUSE, error)
        except Exception:
            log.exception("failed to answer a request of model '%s'", name)
            self._end(key, messages.REFUSE, InternalError("the server failed to answer the request"))

    def answer(self, key: int, response: InferenceResponse) -> None:
        """Sends the one response of a request, unless it was answered before or nobody waits for it."""
        call = self._open.get(key)
        if call is None:
            return
        if response.error is not None:
            self._end(key, messages.FAIL, response.error)
            return
        outputs = []
        size = 0
        for tensor in response.outputs:
            outputs.append((tensor.name, tensor.datatype, tensor.shape, tensor.data))
            size += len(tensor.data)
        is_long = call.is_json and is_long_json(response.outputs)
        if is_long:
            size += json_memory_bytes(response.outputs)
        is_counted = is_long or size > LARGE_ANSWER_BYTES
        if is_counted and (excess := call.inflight.excess_of_answer(size, request_bytes=call.held_bytes)):
            self._end(key, messages.FAIL, errors.NoRoomError(excess))
            return
        self._close(key)
        version = call.request.served_version
        if is_counted:
            self._large.send(key, version, response, call.inflight, size)
        else:
            self._link.send((messages.ANSWER, key, version, outputs, response.parameters))

    def go_on(self) -> None:
        """The link has room again."""
        self._large.go_on()

    def settled(self, key: int) -> None:
        """An answer that went in parts has left for the client."""
        self._large.settled(key)

    def fail_unsent(self, key: int) -> None:
        """The response, or a part of it, could not be sent as a message: an error takes its place."""
        self._large.cancel(key)
        error = InternalError(
            "the response has parameters that cannot pass through a front-end process; a server with "
            "--frontend-processes=1 can send it"
        )
        self._link.send((messages.FAIL, key, encode_error(error)))

    def cancel(self, key: int) -> None:
        """Nobody waits for the request any more."""
        self._large.cancel(key)
        call = self._close(key)
        if call is not None:
            self._leaving.do((call.request.cancel,))

    def answer_rest(self, error: ServingError) -> None:
        """Answers everything that is open with the error, and cancels it."""
        for key, call in list(self._open.items()):
            self._end(key, messages.FAIL, error)
            call.request.cancel()

    def close(self) -> None:
        """The process is gone, and all who waited with it."""
        self._large.close()
        for key in list(self._open):
            self.cancel(key)

    def _end(self, key: int, kind: int, error: ServingError) -> None:
        if self._close(key) is not None:
            self._link.send((kind, key, encode_error(error)))

    def _close(self, key: int) -> _RelayedCall | None:
        """The call, which is open no longer and holds nothing; None where it was not."""
        call = self._open.pop(key, None)
        if call is not None and call.held_bytes:
            call.inflight.hold(-call.held_bytes)
        return call


class _RelayedCall:
    """Takes the responses to one request."""

    __slots__ = ("_key", "_relay", "_service", "_single", "held_bytes", "inflight", "is_json", "request")

    request: InferenceRequest
    """Set before anything else is done."""

    def __init__(
        self, relay: InferRelay, key: int, service: int, inflight: ConnectionBytes, held_bytes: int, is_json: bool
    ) -> None:
        self._relay = relay
        self._key = key
        self._service = service
        self.inflight = inflight
        self.held_bytes = held_bytes
        self.is_json = is_json
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
        self._relay.answer(self._key, response)


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
