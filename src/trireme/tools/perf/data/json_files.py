"""Tensors from JSON files: values, shapes, base64, streams of steps, expected outputs."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import element_count, encode_bytes
from trireme.tools.perf.bounded_files import read_bounded
from trireme.tools.perf.data.generated import known_shape
from trireme.tools.perf.data.tensors import InputTensor, Step, tensor_bytes
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import ModelDescription, TensorSpec

_OTHER_FIELDS = ("model", "timestamp", "parameters")
"""Of an entry, beside its inputs; genai-perf writes the model's name into each."""
Streams = list[tuple[Step, ...]]


def read_json(path: str) -> dict[str, Any]:
    """The document of a file of input data; raises PerfError."""
    try:
        document = json.loads(read_bounded(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PerfError(f"failed to open file for reading provided data: '{path}': {reason}") from None
    except (ValueError, RecursionError) as error:
        raise PerfError(f"failed to parse the specified json file '{path}': {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("data"), list) or not document["data"]:
        raise PerfError(f"the json file '{path}' doesn't contain data field with a list of entries")
    return document


def read_streams(path: str, model: ModelDescription, shapes: dict[str, tuple[int, ...]]) -> Streams:
    """Streams of steps; entries that are no lists themselves make one stream together. Raises PerfError."""
    document = read_json(path)
    try:
        return _streams(path, document, model, shapes)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise PerfError(
            f"the json file '{path}' is not in the form of input data: objects with the inputs by their names, "
            "or lists of such objects"
        ) from None


def _streams(
    path: str, document: dict[str, Any], model: ModelDescription, shapes: dict[str, tuple[int, ...]]
) -> Streams:
    entries, expected = document["data"], document.get("validation_data", [])
    is_nested = isinstance(entries[0], list)
    groups = entries if is_nested else [entries]
    expected_groups = expected if expected and isinstance(expected[0], list) else [expected]
    streams: Streams = []
    for number, group in enumerate(groups):
        wanted = expected_groups[number] if number < len(expected_groups) else []
        steps = []
        for position, entry in enumerate(group):
            place = f"'{path}', stream {number}, step {position}"
            outputs = wanted[position] if position < len(wanted) else {}
            steps.append(_step(entry, outputs, model, shapes, place))
        streams.append(tuple(steps))
    steps_text = " ".join(str(len(stream)) for stream in streams) if is_nested else str(len(streams[0]))
    print(f" Successfully read data for {len(streams)} stream/streams with {steps_text} step/steps.")
    return streams


def _step(entry: Any, outputs: Any, model: ModelDescription, shapes: dict[str, tuple[int, ...]], place: str) -> Step:
    if not isinstance(entry, dict):
        raise PerfError(f"{place}: an entry is an object with the inputs by their names")
    known_names = [spec.name for spec in model.inputs]
    for name in entry:
        if name not in known_names and name not in _OTHER_FIELDS:
            has = ", ".join(known_names) or "none"
            raise PerfError(
                f"The input or output '{name}' is not found in the model configuration ({place}; its inputs: {has})"
            )
    tensors = []
    for spec in model.inputs:
        if spec.name in entry:
            tensors.append(_tensor(spec, entry[spec.name], shapes, place))
        elif not spec.is_optional:
            raise PerfError(f"missing tensor {spec.name} ({place})")
    known = {spec.name: spec for spec in model.outputs}
    expected = {}
    for name, value in (outputs or {}).items():
        if name not in known:
            raise PerfError(f"{place}: validation data names '{name}', which is no output of the model")
        expected[name] = _content(known[name].datatype, value, place, name)[0]
    return Step(tuple(tensors), expected, timestamp_ms(entry, place), _parameters(entry))


def timestamp_ms(entry: dict[str, Any], place: str) -> float | None:
    """When an entry of a schedule is to be sent; None where it does not say. Raises PerfError."""
    given = entry.get("timestamp")
    value = (given[0] if given else None) if isinstance(given, list) else given
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not is_number:
        raise PerfError(f"{place}: 'timestamp' is no number of milliseconds")
    return value


def _parameters(entry: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    given = entry.get("parameters")
    if isinstance(given, dict):
        return tuple(sorted(given.items()))
    return ()


def _tensor(spec: TensorSpec, value: Any, shapes: dict[str, tuple[int, ...]], place: str) -> InputTensor:
    data, count = _content(spec.datatype, value, place, spec.name)
    if isinstance(value, dict) and "shape" in value:
        shape = known_shape(spec, {spec.name: tuple(int(dim) for dim in value["shape"])})
    else:
        shape = _shape(spec, shapes, count, place)
    wanted = tensor_bytes(spec.datatype, shape)
    if wanted is not None and wanted != len(data):
        raise PerfError(
            f"mismatch in the data provided for {spec.name}: expected {wanted} bytes for the shape {list(shape)}, "
            f"got {len(data)} ({place})"
        )
    if wanted is None and count is not None and count != element_count(shape):
        raise PerfError(
            f"mismatch in the number of strings for {spec.name}: expected {element_count(shape)}, got {count} ({place})"
        )
    return InputTensor(spec.name, spec.datatype, shape, data)


def _shape(spec: TensorSpec, shapes: dict[str, tuple[int, ...]], count: int | None, place: str) -> tuple[int, ...]:
    """By --shape or the model; a single dimension that varies takes what there is."""
    if spec.name in shapes or spec.shape.count(-1) != 1 or count is None:
        try:
            return known_shape(spec, shapes)
        except PerfError as error:
            raise PerfError(f'{error} ({place}: give "shape" beside "content")') from None
    fixed = element_count(dim for dim in spec.shape if dim != -1)
    return tuple(count // max(1, fixed) if dim == -1 else dim for dim in spec.shape)


def _content(datatype: str, value: Any, place: str, name: str) -> tuple[bytes, int | None]:
    """The wire bytes of a value, and how many elements they are where that is known."""
    if isinstance(value, dict):
        if "b64" in value:
            return _decode(value["b64"], place, name), None
        if "content" not in value:
            raise PerfError(f"{place}: '{name}' is a list of values, or has b64 or content")
        return _content(datatype, value["content"], place, name)
    values = value if isinstance(value, list) else [value]
    if datatype == BYTES:
        texts = _flat(values)
        if not all(isinstance(text, str) for text in texts):
            raise PerfError(f"{place}: the values of '{name}' are no texts")
        return encode_bytes(texts), len(texts)
    try:
        if datatype == "BF16":
            numbers = np.array(_flat(values), "<f4").view("<u4") >> 16
            return numbers.astype("<u2").tobytes(), numbers.size
        given = np.array(_flat(values))
        with np.errstate(invalid="ignore"):  # what is lost is told below
            array = given.astype(NUMPY_DTYPE[datatype])
    except (ValueError, TypeError, OverflowError, KeyError):
        raise PerfError(f"{place}: the values of '{name}' are no {datatype}") from None
    if not _is_kept(given, array):
        raise PerfError(f"{place}: the values of '{name}' are no {datatype}, or too large for it")
    return array.tobytes(), array.size


def _is_kept(given: NDArray[Any], array: NDArray[Any]) -> bool:
    """Whether the values are numbers, and whole ones are what they were."""
    return given.dtype.kind in "biuf" and (array.dtype.kind == "f" or bool((given == array).all()))


def _decode(text: Any, place: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise PerfError(f"{place}: the value of '{name}' is no base64") from None


def _flat(values: list[Any]) -> list[Any]:
    if not any(isinstance(value, list) for value in values):
        return values
    return [inner for value in values for inner in _flat(value if isinstance(value, list) else [value])]
