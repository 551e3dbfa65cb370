"""Checks of inputs, outputs and the batch inputs and outputs derived from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from trireme.config.message import ConfigMessage, enum_name
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

_VARIABLE = -1
_BATCH_INPUT_TYPES = ("TYPE_INT32", "TYPE_FP32")

TensorMessage: TypeAlias = "model_config_pb2.ModelInput | model_config_pb2.ModelOutput"


def validate_io(message: ConfigMessage) -> None:
    """Raises InvalidArgumentError for the first tensor that is wrong; the model's name ends the sentence."""
    try:
        for tensor in message.input:
            _validate_input(tensor, message)
        for output in message.output:
            _validate_tensor(output, "model output", message)
        _validate_batch_inputs(message)
        _validate_batch_outputs(message)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error.message} for {message.name}") from None


def _validate_input(tensor: model_config_pb2.ModelInput, message: ConfigMessage) -> None:
    _validate_tensor(tensor, "model input", message)
    if tensor.format != model_config_pb2.ModelInput.FORMAT_NONE and len(tensor.dims) != 3:
        raise InvalidArgumentError("model input NHWC/NCHW require 3 dims")


def _validate_tensor(tensor: TensorMessage, role: str, message: ConfigMessage) -> None:
    if not tensor.name:
        raise InvalidArgumentError(f"{role} must specify 'name'")
    tensor_name = f"{role} '{tensor.name}'"
    if tensor.data_type == model_config_pb2.TYPE_INVALID:
        raise InvalidArgumentError(f"{tensor_name} must specify 'data_type'")
    if not tensor.dims:
        raise InvalidArgumentError(f"{tensor_name} must specify 'dims'")
    _validate_dims(tensor.dims, f"{tensor_name} dimension")
    if tensor.HasField("reshape"):
        _validate_reshape(tensor, tensor_name, is_batched=message.max_batch_size > 0)
    if message.backend != "tensorrt":
        if tensor.is_shape_tensor:
            raise InvalidArgumentError("shape tensors are only supported for TensorRT platform")
        if tensor.is_non_linear_format_io:
            raise InvalidArgumentError("Non-linear IO format is only supported for the TensorRT platform")


def _validate_dims(dims: Iterable[int], subject: str) -> None:
    if any(dim < 1 and dim != _VARIABLE for dim in dims):
        raise InvalidArgumentError(
            f"{subject} must be integer >= 1, or {_VARIABLE} to indicate a variable-size dimension"
        )


def _validate_reshape(tensor: TensorMessage, tensor_name: str, is_batched: bool) -> None:
    shape = tensor.reshape.shape
    if not shape and not is_batched:
        raise InvalidArgumentError(
            f"{tensor_name} cannot have empty reshape for non-batching model as scalar tensors are not supported"
        )
    _validate_dims(shape, f"{tensor_name} reshape dimensions")
    if _VARIABLE not in tensor.dims and _VARIABLE not in shape:
        is_equal = math.prod(tensor.dims) == math.prod(shape)
    else:
        dims_sizes, shape_sizes = _sizes_between_variables(tensor.dims), _sizes_between_variables(shape)
        if len(dims_sizes) != len(shape_sizes) and len(dims_sizes) > 1 and len(shape_sizes) > 1:
            raise InvalidArgumentError(
                f"{tensor_name} has different number of variable-size dimensions for dims and reshape"
            )
        is_equal = dims_sizes == shape_sizes
    if not is_equal:
        raise InvalidArgumentError(f"{tensor_name} has different size for dims and reshape")


def _sizes_between_variables(dims: Sequence[int]) -> list[int]:
    """The products of the fixed dimensions before, between and after the variable ones, which map in order."""
    sizes = [1]
    for dim in dims:
        if dim == _VARIABLE:
            sizes.append(1)
        else:
            sizes[-1] *= dim
    return sizes


def _validate_batch_inputs(message: ConfigMessage) -> None:
    for entry in message.batch_input:
        _validate_sources(entry, "input", message)
        if enum_name(entry, "data_type") not in _BATCH_INPUT_TYPES:
            raise InvalidArgumentError("batch input data type must be TYPE_INT32 or TYPE_FP32")


def _validate_batch_outputs(message: ConfigMessage) -> None:
    outputs = {tensor.name for tensor in message.output}
    seen: set[str] = set()
    for entry in message.batch_output:
        _validate_sources(entry, "output", message)
        for name in entry.target_name:
            if name not in outputs:
                raise InvalidArgumentError(f"unknown target output name '{name}'")
            if name in seen:
                raise InvalidArgumentError(f"target output name '{name}' can only be specified once")
            seen.add(name)


def _validate_sources(
    entry: model_config_pb2.BatchInput | model_config_pb2.BatchOutput, role: str, message: ConfigMessage
) -> None:
    if len(entry.source_input) != 1:
        raise InvalidArgumentError(
            f"batch {role} kind '{enum_name(entry, 'kind')}' expects 1 source input, got {len(entry.source_input)}"
        )
    inputs = {tensor.name for tensor in message.input}
    for name in entry.source_input:
        if name not in inputs:
            raise InvalidArgumentError(f"unknown source input name '{name}'")
