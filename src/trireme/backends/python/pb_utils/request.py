"""`pb_utils.InferenceRequest`: what execute is given, and what a model makes to call another model."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.response import InferenceResponse, Parameters, checked_parameters
from trireme.backends.python.pb_utils.response_iterator import ResponseIterator
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.tensor import Tensor, decode_tensor, encode_tensor
from trireme.backends.python.pb_utils.types import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    PreferredMemory,
    as_text,
)

_OUTSIDE = "BLS is only supported during the 'execute' function."
_DEFAULT_MEMORY = PreferredMemory(TRITONSERVER_MEMORY_CPU)
_new = object.__new__


class InferenceTrace:
    """Where a request stands in a trace; handed on, it makes the called request a child."""

    __slots__ = ("_context", "key")

    def __init__(self, context: str | None = None, key: int = 0) -> None:
        self._context = context
        self.key = key  # of the request it was taken from

    def get_context(self) -> str | None:
        """The OpenTelemetry context, where the server traces that way."""
        return self._context


_NO_TRACE = InferenceTrace()


class InferenceRequest:
    """One request. Those given to execute are views of the message they came in."""

    __slots__ = ("_flags", "_inputs", "_message", "_model", "_release_flags", "_runtime", "_sender")

    # (key, id, tensors, output names, correlation id, flags, timeout, parameters, trace context), as in messages.py
    _message: tuple[Any, ...]
    _inputs: list[Tensor]
    _flags: int
    _release_flags: int
    _runtime: pb_runtime.Runtime | None
    _sender: InferenceResponseSender | None
    _model: tuple[str, int]  # name and version, of a request that a model made

    def __init__(
        self,
        request_id: str | bytes = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] | None = None,
        requested_output_names: Sequence[str | bytes] | None = None,
        model_name: str | bytes | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory = _DEFAULT_MEMORY,
        trace: InferenceTrace = _NO_TRACE,
        parameters: Mapping[str, bool | int | str] | None = None,
    ) -> None:
        request_id = as_text("InferenceRequest: request_id", request_id)
        model_name = as_text("InferenceRequest: model_name", model_name)
        for name, number in (("model_version", model_version), ("flags", flags), ("timeout", timeout)):
            _check(name, number, int)
        _check("preferred_memory", preferred_memory, PreferredMemory)
        _check("trace", trace, InferenceTrace)
        if flags < 0 or timeout < 0:
            raise TypeError("InferenceRequest: flags and timeout must not be negative")
        named = f"for request with id '{request_id}' and model name '{model_name}' should not be empty."
        self._inputs = _checked_inputs(inputs, named)
        self._message = (
            trace.key,
            request_id,
            None,
            _checked_names(requested_output_names, named),
            _checked_correlation_id(correlation_id),
            flags,
            timeout,
            {} if parameters is None else checked_parameters(parameters),
            trace.get_context(),
        )
        self._model = (model_name, model_version)
        self._flags = flags
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        self._runtime = None
        self._sender = None

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        request_id: str = self._message[1]
        return request_id

    def correlation_id(self) -> int | str:
        correlation_id: int | str = self._message[4]
        return correlation_id

    def requested_output_names(self) -> set[str]:
        return set(self._message[3])

    def flags(self) -> int:
        return self._flags

    def set_flags(self, flags: int) -> None:
        _check("flags", flags, int)
        self._flags = flags

    def timeout(self) -> int:
        """In microseconds; 0 is none."""
        timeout: int = self._message[6]
        return timeout

    def parameters(self) -> str:
        """As JSON."""
        import json

        return json.dumps(self._message[7] or {}, separators=(",", ":"), ensure_ascii=False)

    def trace(self) -> InferenceTrace:
        return InferenceTrace(self._message[8], self._message[0])

    def set_release_flags(self, flags: int) -> None:
        _check("flags", flags, int)
        self._release_flags = flags

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        runtime = self._runtime
        if runtime is None:
            return False
        runtime.channel.poll()
        return self._message[0] in runtime.cancelled

    def get_response_sender(self) -> InferenceResponseSender:
        """The same sender at every call."""
        if self._sender is None:
            if self._runtime is None:
                raise TritonModelException("a request that a model made has no response sender")
            with self._runtime.sender_lock:  # a second one would end the request as soon as it goes
                if self._sender is None:
                    self._sender = InferenceResponseSender(self._runtime, self._message[0], self._message[3])
        return self._sender

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Runs the request on its model and waits: the response (errors are inside it), or with `decoupled` an
        iterator over the responses."""
        runtime = _serving_runtime()
        return runtime.server_calls.execute(_encode_call(self, runtime), decoupled)

    def async_exec(self, decoupled: bool = False) -> Awaitable[InferenceResponse | ResponseIterator]:
        """The same without blocking the running event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        runtime = _serving_runtime()
        return runtime.server_calls.execute_async(_encode_call(self, runtime), decoupled, loop)


def decode_request(message: tuple[Any, ...], runtime: pb_runtime.Runtime) -> InferenceRequest:
    """A request out of an EXECUTE message."""
    request: InferenceRequest = _new(InferenceRequest)
    attachments = runtime.channel.attachments
    request._message = message
    request._inputs = [decode_tensor(tensor, attachments) for tensor in message[2]]
    request._flags = message[5]
    request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
    request._runtime = runtime
    request._sender = None
    return request


def parameters_of(request: InferenceRequest) -> Parameters:
    """The parameters as values."""
    parameters: Parameters = request._message[7]
    return parameters


def _serving_runtime() -> pb_runtime.Runtime:
    runtime = pb_runtime.current()
    if runtime.phase != pb_runtime.SERVING:
        raise TritonModelException(_OUTSIDE)
    return runtime


def _encode_call(request: InferenceRequest, runtime: pb_runtime.Runtime) -> pb_runtime.CallRequest:
    key, request_id, _, names, correlation_id, _, timeout, parameters, trace = request._message
    arena = runtime.channel.server_arena
    body = (
        key or pb_runtime.parent_key.get(),
        request_id,
        [encode_tensor(tensor, arena) for tensor in request._inputs],
        names,
        correlation_id,
        request._flags,
        timeout,
        parameters,
        trace,
    )
    return (*request._model, body)


def _check(name: str, value: object, expected: type) -> None:
    if not isinstance(value, expected):
        raise TypeError(f"InferenceRequest: {name} must be {expected.__name__}, found {type(value).__name__}")


def _checked_inputs(inputs: Any, named: str) -> list[Tensor]:
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise TypeError(f"InferenceRequest: inputs must be a list of Tensor, found {type(inputs).__name__}")
    for tensor in inputs:
        if tensor is None:
            raise TritonModelException(f"Input tensor {named}")
        _check("every one of inputs", tensor, Tensor)
    return list(inputs)


def _checked_names(names: Any, named: str) -> tuple[str, ...]:
    if not isinstance(names, Sequence) or isinstance(names, (str, bytes)):
        raise TypeError(f"InferenceRequest: requested_output_names must be a list of str, found {type(names).__name__}")
    texts = tuple(as_text("InferenceRequest: every one of requested_output_names", name) for name in names)
    if not all(texts):
        raise TritonModelException(f"Requested output name {named}")
    return texts


def _checked_correlation_id(correlation_id: Any) -> int | str:
    if correlation_id is None:
        raise TypeError("InferenceRequest: correlation_id must be int or str, found NoneType")
    if not isinstance(correlation_id, (int, str)):
        raise TritonModelException("Correlation ID must be integer or string")
    if isinstance(correlation_id, int) and not 0 <= correlation_id < 1 << 64:
        raise TritonModelException("Correlation ID must be an unsigned 64-bit integer")
    return int(correlation_id) if isinstance(correlation_id, int) else str(correlation_id)
