"""What the server adds to the requests of a sequence and takes out of their responses: controls and states."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from trireme.config.model_config import ModelConfig
from trireme.config.sequence_config import (
    CORRELATION_ID,
    END,
    START,
    ControlConfig,
    SequenceBatchingConfig,
    StateConfig,
)
from trireme.core.datatype import BYTES, ITEM_SIZE
from trireme.core.elements import element_count
from trireme.core.errors import InvalidArgumentError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.machine.regular_files import read_regular
from trireme.scheduling.sequence.sequence import LiveSequence

_VALUE_FORMATS: Final = {"INT32": "<i", "FP32": "<f", "BOOL": "<?"}
_STRING_LENGTH: Final = struct.Struct("<I")


class SequenceInputs:
    """Adds what the model of a sequence is told to its requests, and takes what it keeps out of the responses."""

    def __init__(self, config: ModelConfig, batching: SequenceBatchingConfig, folder: Path | None) -> None:
        self._batch = (1,) if config.max_batch_size > 0 else ()
        self._shape = (*self._batch, 1)
        self._switches = [self._switch(control) for control in batching.controls if control.kind != CORRELATION_ID]
        self._id_controls = [control for control in batching.controls if control.kind == CORRELATION_ID]
        self._outputs = frozenset(config.outputs)
        self._states = {state.output_name: state.input_name for state in batching.states}
        self._first_states = {state.input_name: self._first_state(state, folder) for state in batching.states}

    def add_controls(self, sequence: LiveSequence, request: InferenceRequest) -> None:
        """Adds the tensors that say where in its sequence the request stands, and the sequence's state."""
        if self._first_states and (request.flags & SEQUENCE_START or not sequence.states):
            sequence.states = dict(self._first_states)
        request.inputs = {**request.inputs, **self._controls(request.flags, True, sequence.id), **sequence.states}
        if self._states:
            sequence.requested = request.requested_outputs
            if request.requested_outputs:
                request.requested_outputs = tuple(dict.fromkeys([*request.requested_outputs, *self._states]))

    def take_states(self, sequence: LiveSequence, request: InferenceRequest, response: InferenceResponse) -> None:
        """Keeps the states that the response brings, and leaves in it what the client asked for."""
        if not self._states:
            return
        left: list[Tensor] = []
        for tensor in response.outputs:
            input_name = self._states.get(tensor.name)
            if input_name is not None:
                # A copy: the state may outlive the memory that the worker has lent.
                sequence.states[input_name] = Tensor(input_name, tensor.datatype, tensor.shape, bytes(tensor.data))
            if tensor.name in self._outputs and (not sequence.requested or tensor.name in sequence.requested):
                left.append(tensor)
        response.outputs = left
        if response.is_final:
            request.requested_outputs = sequence.requested

    def restore(self, sequence: LiveSequence, request: InferenceRequest) -> None:
        """The request was executed without an answer and gets its controls again."""
        if self._states:
            request.requested_outputs = sequence.requested

    def null_request(self, like: InferenceRequest) -> InferenceRequest:
        """Fills a slot without work: inputs of the right shape, and controls that say not to mind them."""
        is_text = isinstance(like.correlation_id, str)
        null = InferenceRequest(like.model_name, like.model_version, "", {}, _discard)
        null.correlation_id = "" if is_text else 0
        null.served_version = like.served_version
        inputs = {name: _blank(tensor) for name, tensor in like.inputs.items()}
        null.inputs = {**inputs, **self._controls(0, False, null.correlation_id), **self._first_states}
        return null

    def _controls(self, flags: int, is_ready: bool, correlation_id: int | str) -> dict[str, Tensor]:
        controls = {}
        for kind, off, on in self._switches:
            if kind == START:
                is_on = flags & SEQUENCE_START != 0
            elif kind == END:
                is_on = flags & SEQUENCE_END != 0
            else:
                is_on = is_ready
            controls[on.name] = on if is_on else off
        for control in self._id_controls:
            data = _id_data(control.datatype, correlation_id)
            controls[control.name] = Tensor(control.name, control.datatype, self._shape, data)
        return controls

    def _switch(self, control: ControlConfig) -> tuple[str, Tensor, Tensor]:
        return control.kind, self._value(control, control.false_value), self._value(control, control.true_value)

    def _value(self, control: ControlConfig, value: float) -> Tensor:
        exact = float(value) if control.datatype == "FP32" else int(value)
        data = struct.pack(_VALUE_FORMATS[control.datatype], exact)
        return Tensor(control.name, control.datatype, self._shape, data)

    def _first_state(self, state: StateConfig, folder: Path | None) -> Tensor:
        size = element_count(state.initial_dims) * ITEM_SIZE.get(state.datatype, 4)  # an empty string is 4 zero bytes
        data = _file_data(state, folder, size) if state.data_file else bytes(size)
        return Tensor(state.input_name, state.datatype, (*self._batch, *state.initial_dims), data)


def _id_data(datatype: str, correlation_id: int | str) -> bytes:
    if datatype == BYTES:
        text = str(correlation_id).encode("utf-8", "replace")  # a model that asks another may send any
        return _STRING_LENGTH.pack(len(text)) + text
    size = ITEM_SIZE[datatype]
    number = correlation_id if isinstance(correlation_id, int) else 0
    return (number & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _blank(tensor: Tensor) -> Tensor:
    """The tensor itself, since its values do not matter; but empty strings for strings."""
    if tensor.datatype != BYTES:
        return tensor
    return Tensor(tensor.name, BYTES, tensor.shape, bytes(4 * element_count(tensor.shape)))


def _file_data(state: StateConfig, folder: Path | None, size: int) -> bytes:
    if folder is None:
        raise InvalidArgumentError(
            f"the initial state '{state.data_file}' of '{state.input_name}' is a file, and the model has no folder"
        )
    if "\0" in state.data_file:
        raise InvalidArgumentError(f"the file of state '{state.input_name}' must not contain a null character")
    root = Path(os.path.realpath(folder / "initial_state"))
    path = Path(os.path.realpath(root / state.data_file))
    if not path.is_relative_to(root):
        raise InvalidArgumentError(f"the file '{state.data_file}' of state '{state.input_name}' must stay in '{root}'")
    try:
        data = read_regular(path)  # on the event loop, which a pipe would hold up
    except OSError as error:
        raise InvalidArgumentError(f"failed to read initial state file '{path}': {error.strerror}") from error
    if len(data) < size:
        raise InvalidArgumentError(
            f"initial_state setting expects {size} bytes, but the data provided from {path.name} only has "
            f"{len(data)} bytes"
        )
    return data if state.datatype == BYTES else data[:size]


def _discard(response: InferenceResponse) -> None:
    """Nobody waits for the response of a null request."""
