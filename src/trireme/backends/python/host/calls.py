"""Requests that a running model makes to other models (BLS), and their answers on the way back to the worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.host.link import HostLink
from trireme.backends.python.host.tensor_messages import borrow, error_message, lend
from trireme.core.errors import ErrorKind, InternalError, NotFoundError, NotReadyError, ServingError
from trireme.core.ports import InferencePort
from trireme.core.request import InferenceRequest, notify_calling_steps
from trireme.core.response import InferenceResponse

log = logging.getLogger(__name__)

FindRequest = Callable[[int], InferenceRequest | None]
IsDecoupled = Callable[[str, str], bool]


class BlsCalls:
    """The open calls of one worker process."""

    def __init__(
        self,
        link: HostLink,
        inference: InferencePort,
        is_decoupled: IsDecoupled | None,
        parent_of: FindRequest,
        running: Callable[[], Sequence[InferenceRequest]] = tuple,
    ) -> None:
        self._link = link
        self._inference = inference
        self._is_decoupled = is_decoupled
        self._parent_of = parent_of
        self._running = running
        self._open: dict[int, _BlsCall] = {}

    def on_call(self, message: tuple[Any, ...]) -> None:
        """The model asks another one (CALL)."""
        _, number, model_name, version, form, is_decoupled, start_ns = message
        parent_key, request_id, tensors, outputs, correlation_id, flags, timeout_us, parameters, _ = form
        inputs = {tensor.name: tensor for tensor in borrow(tensors, self._link)}
        request = InferenceRequest(model_name, _version_text(version), request_id, inputs, _discard)
        request.requested_outputs = tuple(outputs)
        request.correlation_id = correlation_id
        request.flags = flags
        request.timeout_us = timeout_us
        request.arrival_ns = start_ns
        request.parameters = dict(parameters or {})
        request.parent = self._parent_of(parent_key) or self._unknown_parent(model_name)
        notify_calling_steps(model_name, request.parent)
        call = _BlsCall(self, number, is_decoupled, request)
        request.respond = call.respond
        self._open[number] = call
        self._submit(call, request)

    def on_cancel(self, message: tuple[Any, ...]) -> None:
        """The model no longer wants the answers to a call (CALL_CANCEL)."""
        call = self._open.get(message[1])
        if call is not None:
            call.request.cancel()

    def cancel_children(self, parent: InferenceRequest) -> None:
        """Nobody waits for the request that made these calls."""
        for call in list(self._open.values()):
            if call.request.parent is parent:
                call.request.cancel()

    def close(self) -> None:
        """The worker is gone: cancels every call; answers that still come are dropped."""
        calls, self._open = self._open, {}
        for call in calls.values():
            call.request.cancel()

    def _unknown_parent(self, model_name: str) -> InferenceRequest:
        """A call made while several requests run together has a parent, though which of them is not known: one that
        stands for them all."""
        parent = InferenceRequest("", "", "", {}, _discard)
        for running in self._running():
            parent.parent = running
            notify_calling_steps(model_name, running)
        return parent

    def _submit(self, call: _BlsCall, request: InferenceRequest) -> None:
        try:
            if not call.is_decoupled and self._is_decoupled is not None:
                self._require_single_response(request)
            self._inference.infer(request)
        except Exception as error:
            if not isinstance(error, ServingError):
                log.exception("a call to model '%s' failed", request.model_name)
            text = _refusal_text(request.model_name, _reason(request.model_name, error))
            self.answer(call, InferenceResponse.of_error(InternalError(text)))  # whatever its kind, as Triton does
            return
        if request.parent is not None and request.parent.is_cancelled:
            request.cancel()

    def _require_single_response(self, request: InferenceRequest) -> None:
        assert self._is_decoupled is not None
        if self._is_decoupled(request.model_name, request.model_version):
            raise InternalError(_mismatch_text(request.model_name))

    def answer(self, call: _BlsCall, response: InferenceResponse) -> None:
        """Passes one response on to the worker."""
        if call.number not in self._open:
            return
        if not response.is_final and not call.is_decoupled:
            self._refuse_stream(call)
            return
        if response.is_final:
            del self._open[call.number]
        form = None if response.is_empty else self._encode(response)
        self._link.send((messages.CALL_RESPONSE, call.number, form, response.is_final))

    def _refuse_stream(self, call: _BlsCall) -> None:
        """Ends a call for one response whose model turns out to be decoupled."""
        text = _refusal_text(call.request.model_name, _mismatch_text(call.request.model_name))
        self.answer(call, InferenceResponse.of_error(InternalError(text)))
        call.request.cancel()

    def _encode(self, response: InferenceResponse) -> tuple[Any, ...]:
        if response.error is not None:
            return [], error_message(response.error), response.parameters
        try:
            return lend(response.outputs, self._link), None, response.parameters
        except (OSError, MemoryError) as error:
            text = f"no memory to pass on a response: {error}"
            return [], (int(ErrorKind.INTERNAL), text), None


class _BlsCall:
    """One call; the bound `respond` is what the called model's request answers to."""

    __slots__ = ("_calls", "is_decoupled", "number", "request")

    def __init__(self, calls: BlsCalls, number: int, is_decoupled: bool, request: InferenceRequest) -> None:
        self._calls = calls
        self.number = number
        self.is_decoupled = is_decoupled
        self.request = request

    def respond(self, response: InferenceResponse) -> None:
        self._calls.answer(self, response)


def _discard(_response: InferenceResponse) -> None:
    pass


def _version_text(version: int | str | None) -> str:
    return "" if version in (-1, "-1", None) else str(version)


def _refusal_text(model_name: str, text: str) -> str:
    return f"Model {model_name} - Error when running inference: {text}"


def _reason(model_name: str, error: Exception) -> str:
    """Triton asks whether the model is ready before it asks anything else, and does not say why it is not."""
    if isinstance(error, NotFoundError | NotReadyError):
        return f"Failed for execute the inference request. Model '{model_name}' is not ready."
    return error_message(error)[1]


def _mismatch_text(model_name: str) -> str:
    return (
        f"Model {model_name} is using the decoupled. The current BLS request call doesn't support models using the "
        "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for "
        "decoupled models.'"
    )
