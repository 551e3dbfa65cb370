"""Checks of inputs, outputs and the batch inputs and outputs derived from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from trireme.config.message import ConfigMessage, enum_name
from trireme.config.validation.problem import Problem
from trireme.proto import model_config_pb2

_VARIABLE = -1
_BATCH_INPUT_TYPES = ("TYPE_INT32", "TYPE_FP32")
_TYPES = "TYPE_FP32, TYPE_INT64, TYPE_STRING and the like"
_TWICE_IN_TRITON = {"input": "; Triton answers no request to such a model", "output": ""}

TensorMessage: TypeAlias = "model_config_pb2.ModelInput | model_config_pb2.ModelOutput"


def tensor_problems(message: ConfigMessage, *, is_complete: bool = True) -> Iterator[Problem]:
    """The model's name ends each sentence. Of a configuration that is not complete, what is missing is no problem."""
    for problem in _problems(message, is_complete):
        yield replace(problem, text=f"{problem.text} for {message.name}")


def repeated_tensor_problems(message: ConfigMessage) -> Iterator[Problem]:
    """Names that are declared more than once. A load passes over them, as Triton's does, and the last entry counts."""
    roles: tuple[tuple[str, Sequence[TensorMessage]], ...] = (("input", message.input), ("output", message.output))
    for role, tensors in roles:
        places = {tensor.name: index for index, tensor in reversed(list(enumerate(tensors)))}
        for index, tensor in enumerate(tensors):
            first = places[tensor.name]
            if tensor.name and index != first:
                yield Problem(
                    f"model {role} '{tensor.name}' is declared more than once for {message.name}: "
                    f"{role}[{first}] has that name too",
                    f"{role}[{index}].name",
                    f"rename or remove one of them, of which only the last counts{_TWICE_IN_TRITON[role]}",
                )


def _problems(message: ConfigMessage, is_complete: bool) -> Iterator[Problem]:
    for index, tensor in enumerate(message.input):
        place = f"input[{index}]"
        yield from _tensor_problems(tensor, "model input", place, message, is_complete)
        if tensor.format != model_config_pb2.ModelInput.FORMAT_NONE and len(tensor.dims) != 3:
            yield Problem("model input NHWC/NCHW require 3 dims", f"{place}.format")
    for index, output in enumerate(message.output):
        yield from _tensor_problems(output, "model output", f"output[{index}]", message, is_complete)
    if is_complete:
        yield from _batch_input_problems(message)
        yield from _batch_output_problems(message)


def _tensor_problems(
    tensor: TensorMessage, role: str, place: str, message: ConfigMessage, is_complete: bool
) -> Iterator[Problem]:
    if not tensor.name:
        if is_complete:
            yield Problem(f"{role} must specify 'name'", place)
        return
    tensor_name = f"{role} '{tensor.name}'"
    if is_complete:
        yield from _missing_fields(tensor, tensor_name, place)
    yield from _dim_problems(tensor.dims, f"{tensor_name} dimension", f"{place}.dims")
    if tensor.HasField("reshape") and (is_complete or tensor.dims):
        yield from _reshape_problems(tensor, tensor_name, place, is_batched=message.max_batch_size > 0)
    if message.backend != "tensorrt":
        if tensor.is_shape_tensor:
            yield Problem("shape tensors are only supported for TensorRT platform", f"{place}.is_shape_tensor")
        if tensor.is_non_linear_format_io:
            yield Problem(
                "Non-linear IO format is only supported for the TensorRT platform", f"{place}.is_non_linear_format_io"
            )


def _missing_fields(tensor: TensorMessage, tensor_name: str, place: str) -> Iterator[Problem]:
    if tensor.data_type == model_config_pb2.TYPE_INVALID:
        yield Problem(f"{tensor_name} must specify 'data_type'", place, f"add data_type: there are {_TYPES}")
    if not tensor.dims:
        yield Problem(
            f"{tensor_name} must specify 'dims'",
            place,
            "add dims without the batch dimension, such as dims: [ 4 ]; -1 is any size",
        )


def _dim_problems(dims: Iterable[int], subject: str, place: str) -> Iterator[Problem]:
    if any(dim < 1 and dim != _VARIABLE for dim in dims):
        yield Problem(f"{subject} must be integer >= 1, or {_VARIABLE} to indicate a variable-size dimension", place)


def _reshape_problems(tensor: TensorMessage, tensor_name: str, place: str, is_batched: bool) -> Iterator[Problem]:
    shape, place = tensor.reshape.shape, f"{place}.reshape"
    if not shape and not is_batched:
        yield Problem(
            f"{tensor_name} cannot have empty reshape for non-batching model as scalar tensors are not supported", place
        )
        return
    wrong = list(_dim_problems(shape, f"{tensor_name} reshape dimensions", place))
    yield from wrong
    if wrong:
        return
    if _VARIABLE not in tensor.dims and _VARIABLE not in shape:
        is_equal = math.prod(tensor.dims) == math.prod(shape)
    else:
        dims_sizes, shape_sizes = _sizes_between_variables(tensor.dims), _sizes_between_variables(shape)
        if len(dims_sizes) != len(shape_sizes) and len(dims_sizes) > 1 and len(shape_sizes) > 1:
            yield Problem(f"{tensor_name} has different number of variable-size dimensions for dims and reshape", place)
            return
        is_equal = dims_sizes == shape_sizes
    if not is_equal:
        yield Problem(f"{tensor_name} has different size for dims and reshape", place)


def _sizes_between_variables(dims: Sequence[int]) -> list[int]:
    """The products of the fixed dimensions before, between and after the variable ones, which map in order."""
    sizes = [1]
    for dim in dims:
        if dim == _VARIABLE:
            sizes.append(1)
        else:
            sizes[-1] *= dim
    return sizes


def _batch_input_problems(message: ConfigMessage) -> Iterator[Problem]:
    for index, entry in enumerate(message.batch_input):
        place = f"batch_input[{index}]"
        yield from _source_problems(entry, "input", place, message)
        if enum_name(entry, "data_type") not in _BATCH_INPUT_TYPES:
            yield Problem("batch input data type must be TYPE_INT32 or TYPE_FP32", f"{place}.data_type")


def _batch_output_problems(message: ConfigMessage) -> Iterator[Problem]:
    outputs = {tensor.name for tensor in message.output}
    seen: set[str] = set()
    for index, entry in enumerate(message.batch_output):
        place = f"batch_output[{index}]"
        yield from _source_problems(entry, "output", place, message)
        for name in entry.target_name:
            if name not in outputs:
                yield Problem(f"unknown target output name '{name}'", f"{place}.target_name")
            elif name in seen:
                yield Problem(f"target output name '{name}' can only be specified once", f"{place}.target_name")
            seen.add(name)


def _source_problems(
    entry: model_config_pb2.BatchInput | model_config_pb2.BatchOutput, role: str, place: str, message: ConfigMessage
) -> Iterator[Problem]:
    if len(entry.source_input) != 1:
        yield Problem(
            f"batch {role} kind '{enum_name(entry, 'kind')}' expects 1 source input, got {len(entry.source_input)}",
            place,
        )
        return
    inputs = {tensor.name for tensor in message.input}
    for name in entry.source_input:
        if name not in inputs:
            yield Problem(f"unknown source input name '{name}'", f"{place}.source_input")
