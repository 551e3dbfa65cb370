"""Tensor elements between JSON values and wire layout, by Triton's rules for each datatype."""

from __future__ import annotations

from array import array
from itertools import chain
from struct import Struct
from typing import Any

import numpy as np
import orjson

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.tensor import Buffer, Tensor, decode_bytes
from trireme.protocol.json_text import encode_number, escape_bytes

MAX_NESTING = 100

_CODES = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP32": "f",
    "FP64": "d",
}
"""Format codes of the datatypes that JSON can carry, as `array` and `memoryview.cast` know them."""

_LENGTH = Struct("<I")
_NUMBERS = {int, float}
_ACCESS = "attempt to access JSON {0} as {1}"


def check_json_input(name: str, datatype: str) -> None:
    """Raises InvalidArgumentError for the datatypes without a JSON form."""
    if datatype not in _CODES and datatype != BYTES:
        raise InvalidArgumentError(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )


def decode_elements(datatype: str, data: Any, count: int) -> bytes:
    """The wire bytes of a `data` list, flat or nested, that must hold `count` elements; the number of BYTES
    elements is left to the validation of the request."""
    if type(data) is not list:
        raise InternalError("Unable to parse 'data': " + _ACCESS.format("non-array", "array"))
    if count == 0 and datatype != BYTES:
        return b""
    types = set(map(type, data))
    if list in types:
        data, types = _flatten(data)
    if datatype == BYTES:
        return _encode_strings(data, types)
    encoded = _encode_fixed(datatype, data, types)
    if len(data) > count:
        raise InternalError("Unable to parse 'data': Shape does not match true shape of 'data' field")
    if len(data) < count:
        raise InternalError("Failed to parse 'data' field: shape does not match true shape")
    return encoded


def encode_elements(tensor: Tensor) -> bytes:
    """The elements as a flat JSON list."""
    code = _CODES.get(tensor.datatype)
    if code is None:
        return _encode_texts(tensor)
    try:
        values = memoryview(tensor.data).cast("B").cast(code).tolist() if len(tensor.data) else []  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise InternalError(f"output '{tensor.name}' does not hold whole {tensor.datatype} elements: {error}") from None
    encoded = orjson.dumps(values)
    if code in "fd" and b"n" in encoded:  # orjson writes `null` for what is not finite
        return b"[%b]" % b",".join(map(encode_number, values))
    return encoded


def encode_text_list(elements: list[bytes]) -> bytes:
    """A JSON list of strings; elements that are not UTF-8 are written as they are."""
    try:
        return orjson.dumps([element.decode() for element in elements])
    except UnicodeDecodeError:
        return b"[%b]" % b",".join(map(escape_bytes, elements))


def pack_string(raw: bytes) -> bytes:
    """One BYTES element in wire layout."""
    return _LENGTH.pack(len(raw)) + raw


def _flatten(data: list[Any]) -> tuple[list[Any], set[type]]:
    depth = 1
    types: set[type] = set(map(type, data))
    while list in types:
        depth += 1
        if depth > MAX_NESTING:
            raise InvalidArgumentError(f"JSON nesting depth exceeds maximum allowed limit ({MAX_NESTING})")
        if types == {list}:
            data = list(chain.from_iterable(data))
        else:
            data = list(chain.from_iterable(item if type(item) is list else (item,) for item in data))
        types = set(map(type, data))
    return data, types


def _encode_fixed(datatype: str, data: list[Any], types: set[type]) -> bytes:
    if datatype == "FP32" or datatype == "FP64":
        if not types <= _NUMBERS:
            raise _unreadable("non-number", "double")
        return array(_CODES[datatype], data).tobytes()
    if datatype == "BOOL":
        if not types <= {bool}:
            raise _unreadable("non-boolean", "boolean")
        return bytes(data)
    sign = "unsigned-integer" if datatype[0] == "U" else "signed-integer"
    if not types <= {int}:
        raise _unreadable("non-" + sign, sign)
    try:
        return array(_CODES[datatype], data).tobytes()
    except OverflowError:
        return _truncate(datatype, data, sign)


def _truncate(datatype: str, data: list[int], sign: str) -> bytes:
    """Integers that fit 64 bits but not the datatype lose their upper bytes, as in a C cast."""
    try:
        wide = array("Q" if sign[0] == "u" else "q", data)
    except OverflowError:
        raise _unreadable("non-" + sign, sign) from None
    return np.frombuffer(wide, dtype=np.uint64).astype(NUMPY_DTYPE[datatype]).tobytes()


def _unreadable(found: str, wanted: str) -> ServingError:
    return InternalError("Unable to parse 'data': " + _ACCESS.format(found, wanted))


def _encode_strings(data: list[Any], types: set[type]) -> bytes:
    if not types <= {str}:
        raise InternalError("Unable to parse JSON bytes array: " + _ACCESS.format("non-string", "string"))
    parts: list[bytes] = []
    for text in data:
        raw = text.encode("utf-8", "surrogateescape")
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def _encode_texts(tensor: Tensor) -> bytes:
    if tensor.datatype != BYTES:
        raise InvalidArgumentError(
            f"sending {tensor.datatype} data via JSON is not supported. Please use the binary data format for output"
        )
    return encode_text_list(decode_strings(tensor.name, tensor.data))


def decode_strings(name: str, data: Buffer) -> list[bytes]:
    """The elements of a BYTES output; raises InternalError where the model's bytes are cut short."""
    try:
        return decode_bytes(data)
    except ValueError as error:
        raise InternalError(f"output '{name}' is not in BYTES layout: {error}") from None
