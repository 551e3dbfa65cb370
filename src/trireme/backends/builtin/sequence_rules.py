"""What the sequence backends demand of a configuration, and how they read the control tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trireme.backends.builtin.model_rules import required_input
from trireme.config.model_config import ModelConfig
from trireme.core.datatype import BYTES
from trireme.core.errors import InvalidArgumentError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor

_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_STRING")


def check_sequence(config: ModelConfig, controls: Sequence[str]) -> None:
    """One vector INPUT, one OUTPUT like it, and at least these control tensors; raises InvalidArgumentError."""
    batching = config.message.sequence_batching
    names = {control.name for control in batching.control_input}
    if not names.issuperset(controls):
        quoted = [f"'{name}'" for name in controls]
        listed = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
        raise InvalidArgumentError(f"{listed} must be configured as the control inputs")
    if list(config.inputs) != ["INPUT"] or len(config.inputs["INPUT"].dims) != 1:
        raise InvalidArgumentError("model must have one input 'INPUT' with vector shape, any length")
    if config.inputs["INPUT"].datatype != "INT32":
        raise InvalidArgumentError("model input must have TYPE_INT32 data-type")
    if list(config.outputs) != ["OUTPUT"]:
        raise InvalidArgumentError("model must have one output 'OUTPUT' with vector shape, any length")
    if config.outputs["OUTPUT"].dims != config.inputs["INPUT"].dims:
        raise InvalidArgumentError("model must have output 'OUTPUT' with shape matching 'INPUT'")
    if config.outputs["OUTPUT"].datatype != "INT32":
        raise InvalidArgumentError("model output must have TYPE_INT32 data-type")


def check_correlation_id(config: ModelConfig) -> None:
    """CORRID is a number or a text that is one; raises InvalidArgumentError."""
    for control_input in config.message.sequence_batching.control_input:
        if control_input.name != "CORRID":
            continue
        for control in control_input.control:
            field = control.DESCRIPTOR.fields_by_name["data_type"]
            if field.enum_type.values_by_number[control.data_type].name not in _CORRELATION_TYPES:
                raise InvalidArgumentError("model CORRID control input must have TYPE_UINT64 or TYPE_STRING data-type")


def is_set(request: InferenceRequest, control: str) -> bool:
    """What a control tensor says; raises InvalidArgumentError where the request has none."""
    tensor = required_input(request, control)
    values = tensor.to_numpy().ravel()
    return len(values) > 0 and bool(values[0])


def correlation_id(request: InferenceRequest) -> int:
    """The number in CORRID; raises InvalidArgumentError where it is none."""
    tensor = required_input(request, "CORRID")
    value = tensor.to_numpy().ravel()[0]
    if tensor.datatype != BYTES:
        return int(value)
    try:
        return int(value)
    except ValueError:
        raise InvalidArgumentError(
            "dyna sequence backend expects correlation ID to be decodable into an integer"
        ) from None


def sum_of(tensor: Tensor) -> int:
    """The sum of an INT32 tensor."""
    return int(tensor.to_numpy().sum(dtype=np.int64))


def as_int32(value: int) -> int:
    """What is left of a number in 32 bits."""
    return (value + 2**31) % 2**32 - 2**31
