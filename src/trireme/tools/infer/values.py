"""Values as tensors of a model: conversion to the datatype, and the shape that fits."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BF16, BYTES, NUMPY_DTYPE
from trireme.core.elements import decode_bytes, element_count
from trireme.core.reading.json_levels import DeepJsonError, read_json
from trireme.core.tensor import Tensor
from trireme.tools.client.errors import AnswerError, InputError
from trireme.tools.client.model import ServedModel
from trireme.tools.perf.model import TensorSpec

Shape = tuple[int, ...]
Array = NDArray[Any]

_NAMED_NUMBERS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def values_of_text(spec: TensorSpec, text: str) -> Any:
    """What somebody typed: one text for BYTES, or a JSON list of texts; numbers as JSON or between commas."""
    if spec.datatype == BYTES:
        return _texts(text)
    try:
        return read_json(text)
    except DeepJsonError:
        raise InputError(f"the lists given for input '{spec.name}' are nested too deeply") from None
    except ValueError:
        words = [word for word in re.split(r"[\s,]+", text.strip().strip("[]")) if word]
    try:
        return [_number(spec, word) for word in words]
    except ValueError:
        raise InputError(
            f"input '{spec.name}' takes {spec.datatype}, which '{_cut(text)}' is not; for a file write @FILE"
        ) from None


def tensor_of(model: ServedModel, spec: TensorSpec, values: Any, shape: Shape | None) -> Tensor:
    """The tensor to send; `values` is a value, a nested list or an array. Raises InputError."""
    array = _converted(spec, values)
    fitting = _given_shape(spec, array, shape) if shape is not None else _fitting_shape(model, spec, array)
    array = array.reshape(fitting)
    if spec.datatype == BF16:
        return Tensor(spec.name, BF16, fitting, _bf16_bytes(array))
    return Tensor.from_numpy(spec.name, array)


def array_of(tensor: Tensor) -> Array:
    """An output's content; BF16 as FP32. Raises AnswerError where it does not fit its datatype and shape."""
    try:
        if tensor.datatype == BF16:
            upper = np.frombuffer(tensor.data, dtype="<u2").astype("<u4") << 16
            return upper.view("<f4").reshape(tensor.shape)
        return tensor.to_numpy()
    except (KeyError, ValueError) as error:
        raise _misfitting(tensor, error) from None


def json_values(array: Array) -> Any:
    """Lists of numbers; JSON has no word for those that are none, or have no end, and gets their names as texts."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    values = array.astype(np.object_)
    for name, number in _NAMED_NUMBERS.items():
        values[np.isnan(array) if np.isnan(number) else array == number] = name
    return values.tolist()


def elements_of(tensor: Tensor) -> list[bytes]:
    """An output's texts; raises AnswerError where its bytes are not in their form."""
    try:
        return decode_bytes(tensor.data)
    except ValueError as error:
        raise _misfitting(tensor, error) from None


def _misfitting(tensor: Tensor, error: Exception) -> AnswerError:
    told = f"{len(tensor.data)} bytes for {tensor.datatype} {list(tensor.shape)}"
    return AnswerError(f"output '{tensor.name}' cannot be read: the server sent {told} ({error})")


def _texts(text: str) -> Any:
    """A JSON list is one of elements where all of it are texts, and a text otherwise: a chat's messages are one."""
    if text.lstrip().startswith("["):
        try:
            values = read_json(text)
        except ValueError:
            return text
        if values and all(isinstance(leaf, str) for leaf in _leaves(values)):
            return values
    return text


def _leaves(values: Any) -> list[Any]:
    return [leaf for value in values for leaf in _leaves(value)] if isinstance(values, list) else [values]


def _number(spec: TensorSpec, word: str) -> Any:
    if spec.datatype == "BOOL":
        if word.lower() not in _BOOLEANS:
            raise ValueError(word)
        return _BOOLEANS[word.lower()]
    return float(word) if spec.datatype.startswith(("FP", "BF")) else int(word, 0)


def _converted(spec: TensorSpec, values: Any) -> Array:
    if spec.datatype == BYTES:
        return _objects(spec, values)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise InputError(f"the rows given for input '{spec.name}' differ in length") from None
    if array.dtype.kind == "U" and spec.datatype.startswith(("FP", "BF")):
        array = np.asarray(_with_numbers(values))
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"input '{spec.name}' takes {spec.datatype}, which {_cut(json.dumps(values, default=str))} is not"
        )
    if spec.datatype == BF16:
        _check_range(spec, array, np.dtype(np.float32))
        return array.astype(np.float32)
    dtype = NUMPY_DTYPE[spec.datatype]
    if dtype.kind in "iu":
        _check_integers(spec, array, dtype)
    elif dtype.kind == "b" and array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise InputError(f"input '{spec.name}' takes BOOL: true, false, 1 or 0")
    elif dtype.kind == "f":
        _check_range(spec, array, dtype)
    return array.astype(dtype)


def _with_numbers(values: Any) -> Any:
    """With the numbers that `json_values` writes as texts."""
    if isinstance(values, list):
        return [_with_numbers(value) for value in values]
    return _NAMED_NUMBERS.get(values, values) if isinstance(values, str) else values


def _check_range(spec: TensorSpec, array: Array, dtype: np.dtype[Any]) -> None:
    """Numbers that have an end, and would have none, are refused."""
    largest = float(np.finfo(dtype).max)
    with np.errstate(over="ignore"):
        is_lost = np.isfinite(array) & ~np.isfinite(array.astype(dtype))
    if is_lost.any():
        raise InputError(f"input '{spec.name}' takes {spec.datatype}: {-largest:g} to {largest:g}")


def _check_integers(spec: TensorSpec, array: Array, dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.trunc(array))).all():
        raise InputError(f"input '{spec.name}' takes {spec.datatype}, and other numbers than whole ones were given")
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise InputError(f"input '{spec.name}' takes {spec.datatype}: {limits.min} to {limits.max}")


def _objects(spec: TensorSpec, values: Any) -> Array:
    if isinstance(values, np.ndarray):
        return values.astype(np.object_) if values.dtype.kind in "OSU" else values.astype(str).astype(np.object_)
    try:
        shape = np.array(values, dtype=np.object_).shape if isinstance(values, list) else ()
    except ValueError:
        raise InputError(f"the rows given for input '{spec.name}' differ in length") from None
    array = np.empty(element_count(shape), dtype=np.object_)
    array[:] = [leaf if isinstance(leaf, bytes) else _text(leaf) for leaf in _leaves(values)]
    return array.reshape(shape)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _given_shape(spec: TensorSpec, array: Array, shape: Shape) -> Shape:
    if shape.count(-1) == 1:
        rest = element_count(dim for dim in shape if dim != -1)
        if rest and array.size % rest == 0:
            shape = tuple(array.size // rest if dim == -1 else dim for dim in shape)
    if element_count(shape) != array.size or -1 in shape:
        raise InputError(f"input '{spec.name}' was given {array.size} values, which do not fill {list(shape)}")
    return shape


def _fitting_shape(model: ServedModel, spec: TensorSpec, array: Array) -> Shape:
    """The shape of what was given where it fits, with a batch of one in front where that was left out; a flat list, or
    a single value, takes the shape that the model fixes."""
    if _fits(array.shape, model.full_shape(spec)):
        return array.shape
    if model.has_batches and _fits(array.shape, spec.shape):
        return (1, *array.shape)
    if array.ndim > 1:
        raise InputError(_misfit(model, spec, f"what was given is {list(array.shape)}"))
    return _filled(model, spec, array.size)


def _fits(shape: Shape, pattern: Shape) -> bool:
    return len(shape) == len(pattern) and all(wanted in (-1, dim) for dim, wanted in zip(shape, pattern, strict=True))


def _filled(model: ServedModel, spec: TensorSpec, count: int) -> Shape:
    fixed = element_count(dim for dim in spec.shape if dim != -1)
    variable = spec.shape.count(-1)
    if not fixed or count % fixed or (variable > 1 and count != fixed):
        if variable > 1:
            advice = f"say which with --shape {spec.name}={','.join(str(dim) for dim in _example(model, spec))}"
            raise InputError(_misfit(model, spec, f"{count} values can be arranged in several shapes: {advice}"))
        raise InputError(_misfit(model, spec, f"{count} {'value was' if count == 1 else 'values were'} given"))
    rest = count // fixed
    if variable:
        dims = tuple(rest if dim == -1 else dim for dim in spec.shape)
        return (1, *dims) if model.has_batches else dims
    if model.has_batches:
        return (rest, *spec.shape)
    if rest != 1:
        raise InputError(_misfit(model, spec, f"{count} values were given"))
    return spec.shape


def _example(model: ServedModel, spec: TensorSpec) -> Shape:
    return tuple(1 if dim == -1 else dim for dim in model.full_shape(spec))


def _misfit(model: ServedModel, spec: TensorSpec, what: str) -> str:
    batch = ", a batch first" if model.has_batches else ""
    return f"input '{spec.name}' takes {spec.datatype} {list(model.full_shape(spec))}{batch}; {what}"


def _bf16_bytes(array: Array) -> bytes:
    """Rounded to the nearest, to even where there are two."""
    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return np.where(np.isnan(array), 0x7FC0, rounded >> 16).astype("<u2").tobytes()


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
