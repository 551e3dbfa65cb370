"""Tensor elements between JSON values and wire layout, by Triton's rules for each datatype."""

from __future__ import annotations

from array import array
from codecs import getincrementaldecoder
from functools import lru_cache
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import numpy as np
import orjson

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import Buffer, decode_bytes, element_count
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.tensor import Tensor
from trireme.protocol.json_codec.slices import (
    SLICE,
    STRINGS_SLICE,
    TEXT_SLICE_BYTES,
    encode_text,
    join_slices,
    slice_texts,
    types_of,
)
from trireme.protocol.json_codec.text import encode_number, escape_bytes

MAX_NESTING: Final = 100
TOLD_NAME_CHARS: Final = 100
"""Of a name that an error tells: clients choose names."""
CODES: Final = {
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
"""Format codes of the datatypes that JSON can carry, as `array` and `struct` know them."""

ITEM_BYTES: Final = {code: Struct("<" + code).size for code in CODES.values()}
_LETTER_N: Final = ord("n")

_dumps: Final = orjson.dumps
_LENGTH: Final = Struct("<I")
_SHORT_LENGTHS: Final = [_LENGTH.pack(size) for size in range(256)]
"""Those of most strings, packed once."""
_NUMBERS: Final = {int, float}
_ACCESS: Final = "attempt to access JSON {0} as {1}"


class ElementCountError(InternalError):
    """There are more or fewer elements than the shape holds."""


@lru_cache(maxsize=256)
def layout_of(code: str, count: int) -> Struct:
    """The layout of that many elements; for few of them it is quicker to use than an array."""
    return Struct(f"<{count}{code}")


def check_json_input(name: str, datatype: str) -> None:
    """Raises InvalidArgumentError for the datatypes without a JSON form."""
    if datatype not in CODES and datatype != BYTES:
        raise InvalidArgumentError(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )


def decode_input(name: str, datatype: str, data: Any, count: int) -> bytes:
    """The elements of an input, whose name and wants follow Triton's words where they cannot be read."""
    try:
        return decode_elements(datatype, data, count)
    except InternalError as error:
        is_count = isinstance(error, ElementCountError)
        wants = f", whose shape holds {count}" if is_count else f" takes {'text' if datatype == BYTES else datatype}"
        raise InternalError(f"{error.message} (input '{name[:TOLD_NAME_CHARS]}'{wants})") from None


def decode_elements(datatype: str, data: Any, count: int) -> bytes:
    """The wire bytes of a `data` list, flat or nested, that must hold `count` elements; none are looked at where none
    are wanted. Runs of strings may be packed already. The number of BYTES elements is left to the validation of the
    request."""
    if count == 0:
        return b""
    if type(data) is not list:
        raise InternalError("Unable to parse 'data': " + _ACCESS.format("non-array", "array"))
    types = set(map(type, data)) if len(data) <= SLICE else types_of(data)
    if list in types:
        data = _flatten(data, types)
        types = types_of(data)
    if datatype == BYTES:
        return _encode_strings(data, types)
    if len(data) > count:
        _encode_fixed(datatype, data[:count], types_of(data[:count]))  # what is wrong with these is told first
        raise ElementCountError("Unable to parse 'data': Shape does not match true shape of 'data' field")
    encoded = _encode_fixed(datatype, data, types) if count <= SLICE else _encode_many(datatype, data)
    if len(data) < count:
        raise ElementCountError("Failed to parse 'data' field: shape does not match true shape")
    return encoded


def encode_elements(tensor: Tensor) -> bytes:
    """The elements as a flat JSON list."""
    code = CODES.get(tensor.datatype)
    if code is None:
        return _encode_texts(tensor)
    data = tensor.data
    if len(data) > SLICE:
        return _encode_many_numbers(tensor)
    try:
        return encode_numbers(layout_of(code, len(data) // ITEM_BYTES[code]), data)
    except StructError as error:
        raise InternalError(f"output '{tensor.name}' does not hold whole {tensor.datatype} elements: {error}") from None


def encode_numbers(layout: Struct, data: Buffer) -> bytes:
    """Few elements as a flat JSON list; raises StructError where the data does not have this layout."""
    values = layout.unpack(data)
    encoded = _dumps(values)
    if _LETTER_N in encoded:  # orjson writes `null` for what is not finite
        return b"[%b]" % b",".join(map(encode_number, values))
    return encoded


def number_layout(datatype: str, shape: tuple[int, ...]) -> Struct | None:
    """The layout of a small tensor of numbers; None for all others."""
    code = CODES.get(datatype)
    if code is None or code == "?":
        return None
    count = element_count(shape)
    return layout_of(code, count) if count * ITEM_BYTES[code] <= SLICE else None


def _encode_many_numbers(tensor: Tensor) -> bytes:
    data = memoryview(tensor.data).cast("B")
    starts = range(0, len(data), SLICE)  # SLICE is a multiple of every element's size
    pieces = (Tensor(tensor.name, tensor.datatype, (), data[start : start + SLICE]) for start in starts)
    return b"[%b]" % b",".join([encode_elements(piece)[1:-1] for piece in pieces])


def encode_text_list(elements: list[bytes]) -> bytes:
    """A JSON list of strings; elements that are not UTF-8 are written as they are."""
    if len(elements) > SLICE or sum(map(len, elements)) > TEXT_SLICE_BYTES:
        if len(elements) == 1:
            return b'["%b"]' % _encode_long_text(elements[0])
        return b"[%b]" % b",".join([encode_text_list(group)[1:-1] for group in slice_texts(elements)])
    try:
        return orjson.dumps([element.decode() for element in elements])
    except UnicodeDecodeError:
        return b"[%b]" % b",".join(map(escape_bytes, elements))


def _encode_long_text(element: bytes) -> bytes:
    """The inside of a JSON string, written in pieces."""
    pieces = [element[start : start + TEXT_SLICE_BYTES] for start in range(0, len(element), TEXT_SLICE_BYTES)]
    decoder = getincrementaldecoder("utf-8")()
    try:
        written = [orjson.dumps(decoder.decode(piece))[1:-1] for piece in pieces]
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        written = [escape_bytes(piece)[1:-1] for piece in pieces]
    return b"".join(written)


def pack_run(elements: list[Any]) -> list[Any]:
    """List elements that are strings as one: their bytes in wire layout, which no JSON value is. As objects those of a
    long list would take many times the memory, and leave it in pieces. Others stay as they are."""
    return [_pack_strings(elements)] if set(map(type, elements)) == {str} else elements


def pack_string(raw: bytes) -> bytes:
    """One BYTES element in wire layout."""
    return _LENGTH.pack(len(raw)) + raw


def _flatten(data: list[Any], types: set[type]) -> list[Any]:
    """The elements of nested lists in order, level by level as long as there are only lists, else one by one."""
    depth = 1
    while types == {list}:
        depth += 1
        _check_depth(depth)
        joined: list[Any] = []
        for start in range(0, len(data), SLICE):
            joined += chain.from_iterable(data[start : start + SLICE])
        data = joined
        types = types_of(data)
    return _walk(data, depth) if list in types else data


def _walk(data: list[Any], depth: int) -> list[Any]:
    flat: list[Any] = []
    open_lists = [iter(data)]
    while open_lists:
        for item in open_lists[-1]:
            if type(item) is list:
                _check_depth(depth + len(open_lists))
                open_lists.append(iter(item))
                break
            flat.append(item)
        else:
            open_lists.pop()
    return flat


def _check_depth(depth: int) -> None:
    if depth > MAX_NESTING:
        raise InvalidArgumentError(f"JSON nesting depth exceeds maximum allowed limit ({MAX_NESTING})")


def _encode_many(datatype: str, data: list[Any]) -> bytes:
    return join_slices(lambda piece: _encode_fixed(datatype, piece, set(map(type, piece))), data)


def _encode_fixed(datatype: str, data: list[Any], types: set[type]) -> bytes:
    if datatype == "FP32" or datatype == "FP64":
        if not types <= _NUMBERS:
            raise _unreadable("non-number", "double")
        return array(CODES[datatype], data).tobytes()
    if datatype == "BOOL":
        if not types <= {bool}:
            raise _unreadable("non-boolean", "boolean")
        return bytes(data)
    sign = "unsigned-integer" if datatype[0] == "U" else "signed-integer"
    if not types <= {int}:
        raise _unreadable("non-" + sign, sign)
    try:
        return array(CODES[datatype], data).tobytes()
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
    if not types <= {str, bytes}:
        raise InternalError("Unable to parse JSON bytes array: " + _ACCESS.format("non-string", "string"))
    pack = _pack_rest if bytes in types else _pack_strings
    return join_slices(pack, data, STRINGS_SLICE) if len(data) > STRINGS_SLICE else pack(data)


def _pack_rest(data: list[Any]) -> bytes:
    """Runs that are packed, and strings that are not."""
    return b"".join([entry if type(entry) is bytes else _pack_strings([entry]) for entry in data])


def _pack_strings(data: list[Any]) -> bytes:
    parts: list[bytes] = []
    for text in data:
        raw = text.encode("utf-8", "surrogateescape") if len(text) <= TEXT_SLICE_BYTES else encode_text(text)
        size = len(raw)
        parts.append(_SHORT_LENGTHS[size] if size < 256 else _LENGTH.pack(size))
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
