"""One call that is being recorded: its request as it came, and each response on its way to the client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from trireme.core.call_excerpt import CallExcerpt, begin_of_parameters, begin_of_tensors
from trireme.core.clock import Clock
from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest, OutputParameters, OutputTarget
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

log = logging.getLogger(__name__)

Grow = Callable[[int, int], bool]
"""Asks for room for so many bytes more, of which the second number counts towards the recording's size; False where
there is none."""
_RESPONSE_BYTES: Final = 512
"""What a response takes besides its data, more or less: a stream may have many small ones."""

_NUMBER_BYTES: Final = 8
_MOST_TEXT_BYTES: Final = 16 << 20
"""What describes a call has to fit into a frame."""
_MOST_RESPONSES: Final = 50_000
"""Their description, too, has to fit into a frame."""

OnDone = Callable[["Capture"], None]


class Capture:
    """Stands between the response stages and the client. Data is copied where its memory is not its own."""

    __slots__ = (
        "_call",
        "_clock",
        "_data_bytes",
        "_excerpt",
        "_grow",
        "_is_cut",
        "_left_out",
        "_limit_bytes",
        "_on_done",
        "_placed",
        "_request",
        "_respond",
        "_responses",
        "_start_ns",
        "input_bytes",
        "is_done",
        "size_bytes",
    )

    def __init__(
        self,
        request: InferenceRequest,
        at_ns: int,
        limit_bytes: int,
        has_answers: bool,
        shared: Sequence[str],
        clock: Clock,
        grow: Grow,
        on_done: OnDone,
    ) -> None:
        self._clock = clock
        self._start_ns = clock()
        self._limit_bytes = limit_bytes
        self._grow = grow
        self._on_done = on_done
        self._request = request
        self._respond = request.respond
        self._responses: list[RecordedResponse] | None = [] if has_answers else None
        self._is_cut = False
        self._left_out: tuple[int, ...] = ()
        """Bytes of each input, where they are kept without their data."""
        self._excerpt: CallExcerpt | None = None
        self._placed: dict[str, Buffer] = {}
        self.is_done = False
        self.size_bytes = self.input_bytes = self._data_bytes = 0
        self._call = self._describe(request, at_ns, shared)
        if request.output_parameters is not None and request.output_parameters.targets and has_answers:
            request.output_parameters = self._observed(request.output_parameters)
        request.respond = self
        request.recorded = self

    def __call__(self, response: InferenceResponse) -> None:
        if not self.is_done:
            try:
                self._take(response)
            except Exception:  # whoever waits for the response waits for no recording
                log.exception("a response of model '%s' could not be recorded", self._request.model_name)
                self._is_cut = True
            if response.is_final:
                self.end()
        self._respond(response)

    def refuse(self, error: ServingError) -> None:
        """The request was not taken."""
        if not self.is_done:
            self._take(InferenceResponse.of_error(error))
            self.end()

    def end(self) -> None:
        """Nothing of the call is recorded any more."""
        self.is_done = True
        self._on_done(self)

    def recorded(self, is_finished: bool = True) -> RecordedCall:
        """The call as far as it was seen."""
        return RecordedCall(
            **self._call,
            served_version=self._request.served_version,
            responses=tuple(self._responses or ()),
            has_answer=self._responses is not None,
            is_finished=is_finished,
            is_cut=self._is_cut,
        )

    def excerpt(self) -> CallExcerpt:
        """What is to be seen of it; responses that are still to come are added to the same object."""
        if self._excerpt is None:
            call = self._call  # which is without inputs and parameters where its texts are too large
            parameters = begin_of_parameters(call.get("parameters", {}))
            inputs = begin_of_tensors(call.get("inputs", ()))
            if self._left_out:
                sizes = zip(inputs, self._left_out, strict=False)  # an excerpt has the first of them
                inputs = tuple(replace(one, size_bytes=size_bytes) for one, size_bytes in sizes)
            self._excerpt = CallExcerpt(inputs, parameters, call["unplayable"])
            for response in self._responses or ():
                _add_to_excerpt(self._excerpt, response)
        return self._excerpt

    def _describe(self, request: InferenceRequest, at_ns: int, shared: Sequence[str]) -> dict[str, Any]:
        """What is known of the call when it begins."""
        size = sum(len(tensor.data) for tensor in request.inputs.values())
        output_parameters = request.output_parameters
        texts = _texts_of(request, output_parameters, shared)
        told = {"at_ns": at_ns, "model": request.model_name, "protocol": _protocol_of(request.respond)}
        if texts > _MOST_TEXT_BYTES:
            self.size_bytes = _text_bytes(request.model_name)
            return told | {"unplayable": _too_large("names and parameters", texts)}
        is_small = size <= self._limit_bytes
        if not is_small:
            self._left_out = tuple(len(tensor.data) for tensor in request.inputs.values())
        self.input_bytes = self._data_bytes = size if is_small else 0
        self.size_bytes = self.input_bytes + texts
        return told | {
            "version": request.model_version,
            "request_id": request.id,
            "inputs": tuple(_kept(tensor, is_small) for tensor in request.inputs.values()),
            "outputs": request.requested_outputs,
            "class_counts": {} if output_parameters is None else dict(output_parameters.class_counts),
            "parameters": dict(request.parameters),
            "correlation_id": request.correlation_id,
            "is_start": bool(request.flags & SEQUENCE_START),
            "is_end": bool(request.flags & SEQUENCE_END),
            "priority": request.priority,
            "timeout_us": request.timeout_us,
            "shared_memory": (*shared, *(() if output_parameters is None else output_parameters.places)),
            "unplayable": "" if is_small else _too_large("inputs", size),
        }

    def _take(self, response: InferenceResponse) -> None:
        if self._responses is None or self._is_cut:
            return
        size = sum(len(self._placed.get(tensor.name, tensor.data)) for tensor in response.outputs)
        error = response.error
        texts = _parameters_bytes(response.parameters or {}) + _tensors_bytes(response.outputs)
        texts += 0 if error is None else _text_bytes(error.message)
        held = size + _RESPONSE_BYTES + texts
        is_large = self._data_bytes + size > 2 * self._limit_bytes or len(self._responses) >= _MOST_RESPONSES
        if is_large or not self._grow(held, size + _RESPONSE_BYTES):
            self._is_cut = True
            return
        self._data_bytes += size
        self.size_bytes += held
        taken = RecordedResponse(
            self._clock() - self._start_ns,
            tuple(self._output(tensor) for tensor in response.outputs),
            dict(response.parameters or {}),
            None if error is None else error.message,
            "" if error is None else error.kind.label,
            response.is_empty,
        )
        self._responses.append(taken)
        if self._excerpt is not None:
            _add_to_excerpt(self._excerpt, taken)

    def _output(self, tensor: Tensor) -> Tensor:
        data = self._placed.pop(tensor.name, None)
        return Tensor(tensor.name, tensor.datatype, tuple(tensor.shape), bytes(tensor.data) if data is None else data)

    def _observed(self, output_parameters: OutputParameters) -> OutputParameters:
        targets: dict[str, OutputTarget] = {
            name: _ObservedTarget(target, self._placed) for name, target in output_parameters.targets.items()
        }
        return OutputParameters(output_parameters.class_counts, output_parameters.places, targets)


class _ObservedTarget:
    """Implements `core.request.OutputTarget`: what is written into a client's memory is kept on the way."""

    __slots__ = ("_placed", "_target")

    def __init__(self, target: OutputTarget, placed: dict[str, Buffer]) -> None:
        self._target = target
        self._placed = placed

    def write(self, tensor: Tensor) -> Tensor:
        """Passes the tensor on."""
        self._placed[tensor.name] = bytes(tensor.data)
        return self._target.write(tensor)


def _add_to_excerpt(excerpt: CallExcerpt, response: RecordedResponse) -> None:
    if response.error is None and not response.is_empty:
        excerpt.add_response(response.outputs)


def _kept(tensor: Tensor, has_data: bool) -> Tensor:
    data = _lasting(tensor.data) if has_data else b""
    return Tensor(tensor.name, tensor.datatype, tuple(tensor.shape), data)


def _lasting(data: Buffer) -> Buffer:
    """The data itself where it is most of the received bytes, which stay as they are; else a copy, since a small view
    would keep a whole body."""
    if type(data) is bytes:
        return data
    is_most = type(data) is memoryview and type(data.obj) is bytes and 2 * len(data) >= len(data.obj)
    return data if is_most else bytes(data)


def _texts_of(request: InferenceRequest, output_parameters: OutputParameters | None, shared: Sequence[str]) -> int:
    """Bytes of names, ids and parameters, which clients choose."""
    correlation_id = request.correlation_id
    names = [request.model_name, request.model_version, request.id, *request.requested_outputs, *shared]
    names += [correlation_id] if isinstance(correlation_id, str) else []
    names += [] if output_parameters is None else [*output_parameters.class_counts, *output_parameters.places]
    described = _tensors_bytes(request.inputs.values()) + _parameters_bytes(request.parameters)
    return sum(map(_text_bytes, names)) + described


def _tensors_bytes(tensors: Iterable[Tensor]) -> int:
    """Of what stands beside their data."""
    return sum(
        _text_bytes(tensor.name) + len(tensor.datatype) + _NUMBER_BYTES * len(tensor.shape) for tensor in tensors
    )


def _parameters_bytes(parameters: Mapping[str, Any]) -> int:
    return sum(
        _text_bytes(name) + (_text_bytes(value) if isinstance(value, str) else _NUMBER_BYTES)
        for name, value in parameters.items()
    )


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _too_large(which: str, size_bytes: int) -> str:
    return f"its {which} have {size_bytes} bytes, more than a recorded call may have"


def _protocol_of(respond: Any) -> str:
    """Which front end waits for the answer: told by where its code is, so that no request has to carry it, or by
    itself where the same code answers both."""
    owner = respond
    while hasattr(owner, "func"):
        owner = owner.func
    owner = getattr(owner, "__self__", owner)
    told = getattr(owner, "protocol", None)
    place = getattr(owner, "__module__", None) or type(owner).__module__
    return next((name for name in ("http", "grpc") if name == told or f".frontends.{name}." in f"{place}."), "")
