"""Tensors made up: zeros or random values, one of each input, used by every request."""

from __future__ import annotations

import numpy as np

from trireme.core.datatype import BYTES, ITEM_SIZE, NUMPY_DTYPE
from trireme.core.elements import element_count, encode_bytes
from trireme.tools.perf.data.tensors import InputTensor
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import TensorSpec
from trireme.tools.perf.options import InputOptions

_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .?!"
_LARGEST_WHOLE = 127
"""Random whole numbers stay where every type, and most vocabularies, have them."""
_MOST_BYTES = 2 << 30
"""Of an input that is made up: no message of gRPC can have more. The shapes are those that a server says."""


def known_shape(spec: TensorSpec, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to send, with --shape where dimensions vary; raises PerfError where that is missing or does not fit."""
    given = shapes.get(spec.name)
    if given is None:
        if any(dim < 0 for dim in spec.shape):
            dims = ",".join("D" if dim < 0 else str(dim) for dim in spec.shape)
            raise PerfError(
                f"input {spec.name} contains dynamic shape, provide shapes to send along with the request: --shape "
                f"{spec.name}:{dims} with a number for each D"
            )
        return spec.shape
    if len(given) != len(spec.shape):
        raise PerfError(
            f"input '{spec.name}' has {len(spec.shape)} dimensions without the batch, --shape gives {len(given)}"
        )
    if any(dim not in (-1, wanted) for dim, wanted in zip(spec.shape, given, strict=True)):
        raise PerfError(
            f"input '{spec.name}' has the shape {list(spec.shape)}, which the shape {list(given)} does not fit"
        )
    return given


def generated_tensors(
    specs: tuple[TensorSpec, ...], options: InputOptions, rng: np.random.Generator
) -> tuple[InputTensor, ...]:
    """A tensor for every input; an optional one without a known shape is left out."""
    is_zero = options.sources == ("zero",)
    tensors = []
    for spec in specs:
        if spec.is_optional and spec.name not in options.shapes and any(dim < 0 for dim in spec.shape):
            continue
        shape = known_shape(spec, options.shapes)
        _check_size(spec, shape, options)
        try:
            if spec.datatype == BYTES:
                data = _strings(shape, options, is_zero, rng)
            else:
                data = _numbers(spec, shape, is_zero, rng)
        except MemoryError:
            raise PerfError(f"input '{spec.name}' has a shape that there is not enough memory for") from None
        tensors.append(InputTensor(spec.name, spec.datatype, shape, data))
    return tuple(tensors)


def _check_size(spec: TensorSpec, shape: tuple[int, ...], options: InputOptions) -> None:
    """Raises PerfError where the values are more than can be sent, at the dimension that makes them so."""
    if spec.datatype == BYTES:
        size = 4 + (options.string_length if options.string_data is None else len(options.string_data))
    else:
        size = ITEM_SIZE.get(spec.datatype, 1)
    for dim in () if 0 in shape else shape:
        size *= dim
        if size > _MOST_BYTES:
            raise PerfError(
                f"input '{spec.name}' has a shape of more than {_MOST_BYTES >> 30} GiB, too much to be made up and sent"
            )


def _strings(shape: tuple[int, ...], options: InputOptions, is_zero: bool, rng: np.random.Generator) -> bytes:
    count = element_count(shape)
    if options.string_data is not None:
        return encode_bytes([options.string_data] * count)
    if is_zero:
        return encode_bytes([""] * count)
    picks = rng.integers(0, len(_CHARACTERS), (count, options.string_length))
    return encode_bytes("".join(_CHARACTERS[pick] for pick in row) for row in picks)


def _numbers(spec: TensorSpec, shape: tuple[int, ...], is_zero: bool, rng: np.random.Generator) -> bytes:
    count = element_count(shape)
    if spec.datatype == "BF16":
        values = np.zeros(count, "<u2") if is_zero else rng.random(count, np.float32).view("<u4") >> 16
        return values.astype("<u2").tobytes()
    dtype = NUMPY_DTYPE.get(spec.datatype)
    if dtype is None:
        raise PerfError(f"input '{spec.name}' has the datatype {spec.datatype}, which no value can be made up for")
    if is_zero:
        return np.zeros(count, dtype).tobytes()
    if dtype.kind == "f":
        return rng.random(count).astype(dtype).tobytes()
    largest = 1 if dtype.kind == "b" else _LARGEST_WHOLE
    return rng.integers(0, largest, count, endpoint=True).astype(dtype).tobytes()
