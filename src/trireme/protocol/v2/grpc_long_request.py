"""`ModelInferRequest` bytes with much in them besides raw data: counted before anything is built, read on a thread.

A few kilobytes inflate to millions of empty fields, each of which would become an object. This module is not compiled,
so that other threads get to run between two of its steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.threads.giving_way import give_way
from trireme.proto import service_pb2
from trireme.protocol.v2.grpc_contents import EncodedPiece
from trireme.protocol.v2.grpc_request import InferTemplate, id_of, parse_head
from trireme.protocol.v2.grpc_response import varint

MAX_FIELDS: Final = 16_384
"""Inputs, outputs, parameters, raw contents, and the fields and dimensions of each of them, together."""
MAX_STRINGS: Final = 4 << 20
"""Elements of `bytes_contents` in one request."""
MAX_NUMBERS: Final = 16 << 20
"""Elements of all other typed contents in one request."""
MAX_UNPACKED: Final = 1 << 17
"""Those of them that are not packed, as no client library writes them: each is a step of its own."""
MAX_HEAD_BYTES: Final = 16 << 20
"""Of all but tensor data and the id: protobuf reads it without letting other threads run."""
MAX_NAME_BYTES: Final = 64 << 10
"""Of models, inputs, outputs and datatypes."""

_ID: Final = 3
_INPUTS: Final = 5
_RAW_CONTENTS: Final = 7
_OUTPUTS: Final = 6
_NESTED: Final = (4, _OUTPUTS)  # parameters and outputs
_NAME: Final = 1
_VERSION: Final = 2
_NAMES: Final = (_NAME, _VERSION)  # model or input, and version or datatype
_PEEKED: Final = (_NAME, _VERSION, _ID)
_MAX_PEEKED_BYTES: Final = 4096
_INPUT_SHAPE: Final = 3
_INPUT_CONTENTS: Final = 5
_NO_CONTENTS: Final = b"\x2a\x00"
_BYTES_CONTENTS: Final = 8
_FLOATS: Final = {6: 4, 7: 8}  # fp32_contents and fp64_contents: bytes of an element
_ENCODED: Final = {6: "fp32_contents", 7: "fp64_contents"}
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_VARINT_BYTES: Final = 10
_COUNT_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 64 << 10
"""Of typed contents that are decoded at once."""
_STRING_LENGTH: Final = Struct("<I")

DecodedRequest = tuple[InferTemplate, str, list[Buffer]]
"""Template, id and raw tensor data."""
Piece = tuple[int, int, int]
"""Of typed contents: the number of a field and the bounds of its value or of a part of it, or 0 and those of fields."""


class RequestNames(NamedTuple):
    """Whom a request is for, and what its client calls it."""

    model_name: str
    model_version: str
    request_id: str


def decode_long(message: Buffer) -> DecodedRequest:
    """The same as `InferRequestDecoder.decode` for a message that it calls long; raises InvalidArgumentError where
    there is more in it than any model takes, InternalError where it is no message at all."""
    try:
        parts = _Parts(message)
        template = parse_head(b"".join(parts.head))
        template.decode_contents([_load(message, pieces) for pieces in parts.contents])
    except (IndexError, UnicodeDecodeError, DecodeError):
        raise InternalError("Unable to parse request") from None
    return template, parts.request_id, parts.raw_contents


def peek_names(message: Buffer) -> RequestNames | None:
    """What a message names in front of all else, as clients write it; None where it does not, or not once. Looked at
    before a long message is read, which is not worth it for a model that there is not."""
    names: dict[int, str] = {}
    try:
        for number, kind, start, stop in _fields(message, 0, len(message)):
            if kind != _LENGTH or number not in _PEEKED:
                break
            if number in names or stop - start > _MAX_PEEKED_BYTES:
                return None
            names[number] = str(message[start:stop], "utf-8")
    except (IndexError, UnicodeDecodeError):
        return None
    return RequestNames(*(names.get(number, "") for number in _PEEKED)) if names.get(_NAME) else None


def decode_long_or_refuse(message: Buffer) -> DecodedRequest | ServingError:
    """The same with the error as a result."""
    try:
        return decode_long(message)
    except ServingError as error:
        return error


def check_fields(message: Buffer) -> None:
    """Counts the outermost fields of the message of another call; raises as `decode_long` does."""
    counts = _Counts()
    try:
        for _ in _fields(message, 0, len(message)):
            counts.add_fields()
    except IndexError:
        raise InternalError("Unable to parse request") from None


class _Parts:
    """A message taken apart: what protobuf is to read, and where the tensor data are."""

    def __init__(self, message: Buffer) -> None:
        self.head: list[bytes] = []
        self.request_id = ""
        self.raw_contents: list[Buffer] = []
        self.contents: list[list[Piece]] = []
        """Of each input."""
        self._message = memoryview(message)
        self._counts = _Counts()
        self._read()

    def _read(self) -> None:
        message, counts, first = self._message, self._counts, 0
        for number, kind, start, stop in _fields(message, 0, len(message)):
            counts.add_fields()
            if kind == _LENGTH and number == _RAW_CONTENTS:
                self.raw_contents.append(message[start:stop])
            elif kind == _LENGTH and number == _ID:
                self.request_id = id_of(message, start, stop)
            elif kind == _LENGTH and number == _INPUTS:
                described = b"".join(self._input(start, stop))
                self.head += bytes((_INPUTS << 3 | _LENGTH,)), varint(len(described)), described
            else:
                if kind == _LENGTH and number in _NESTED:
                    for inner, _, begin, end in _fields(message, start, stop):
                        counts.add_fields()
                        if number == _OUTPUTS and inner == _NAME:
                            counts.check_name(inner, end - begin)
                elif kind == _LENGTH:
                    counts.check_name(number, stop - start)
                counts.add_head(stop - first)
                self.head.append(bytes(message[first:stop]))
            first = stop

    def _input(self, start: int, stop: int) -> Iterator[bytes]:
        """The input without its contents, if it has any."""
        message, counts, first = self._message, self._counts, start
        pieces: list[Piece] = []
        self.contents.append(pieces)
        for number, kind, begin, end in _fields(message, start, stop):
            counts.add_fields()
            if kind == _LENGTH and number == _INPUT_CONTENTS:
                pieces += self._pieces(begin, end)
                yield _NO_CONTENTS
            else:
                if kind == _LENGTH:
                    counts.check_name(number, end - begin)
                    if number == _INPUT_SHAPE:
                        counts.add_fields(_packed_count(message, number, begin, end))
                counts.add_head(end - first)
                yield bytes(message[first:end])
            first = end

    def _pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Typed contents in pieces that do not take long; a string is one, whatever its length."""
        message, counts = self._message, self._counts
        first = last = start  # of fields that are not in a piece yet
        for number, kind, begin, end in _fields(message, start, stop):
            if number == _BYTES_CONTENTS:
                counts.add_strings()
            else:
                counts.add_numbers(_packed_count(message, number, begin, end) if kind == _LENGTH else 1)
                counts.add_unpacked(kind != _LENGTH)
            if end - first > _PIECE_BYTES:
                give_way()
                if first < last:
                    yield 0, first, last
                first = last
                if kind == _LENGTH and end - begin > _PIECE_BYTES:
                    yield from _large_pieces(message, number, begin, end)
                    first = end
            last = end
        if first < last:
            yield 0, first, last


def _large_pieces(message: Buffer, number: int, start: int, stop: int) -> Iterator[Piece]:
    """The value of one field, in parts where it has elements."""
    if number > _BYTES_CONTENTS:
        return  # which nobody knows
    if number == _BYTES_CONTENTS or number in _FLOATS:
        if (stop - start) % _FLOATS.get(number, 1):
            raise IndexError
        yield number, start, stop
        return
    while start < stop:
        end = min(start + _PIECE_BYTES, stop)
        for _ in range(_VARINT_BYTES):
            if message[end - 1] < 0x80 or end == stop:
                break
            end += 1
        yield number, start, end
        start = end


def _load(message: Buffer, pieces: list[Piece]) -> Iterator[Any]:
    view = memoryview(message)
    read = service_pb2.InferTensorContents.FromString
    for number, start, stop in pieces:
        give_way()
        data = bytes(view[start:stop])
        if not number:
            yield read(data)
        elif number == _BYTES_CONTENTS:
            yield EncodedPiece("bytes_contents", _STRING_LENGTH.pack(len(data)) + data)
        elif number in _ENCODED:
            yield EncodedPiece(_ENCODED[number], data)
        else:
            yield read(bytes((number << 3 | _LENGTH,)) + varint(len(data)) + data)


class _Counts:
    """What was found so far; each method raises where it is too much."""

    def __init__(self) -> None:
        self._fields = self._strings = self._numbers = self._unpacked = self._head_bytes = 0

    def add_fields(self, count: int = 1) -> None:
        self._fields += count
        if self._fields > MAX_FIELDS:
            raise InvalidArgumentError(
                f"the request has more than {MAX_FIELDS} fields, which is the limit for inputs, outputs, parameters, "
                "dimensions and raw contents together"
            )

    def add_strings(self) -> None:
        self._strings += 1
        if self._strings > MAX_STRINGS:
            raise _too_many(MAX_STRINGS, "strings")

    def add_numbers(self, count: int) -> None:
        self._numbers += count
        if self._numbers > MAX_NUMBERS:
            raise _too_many(MAX_NUMBERS, "numbers")

    def add_unpacked(self, count: int) -> None:
        self._unpacked += count
        if self._unpacked > MAX_UNPACKED:
            raise InvalidArgumentError(
                f"the request has more than {MAX_UNPACKED} numbers with a tag each, which is the limit: pack them, or "
                "send raw contents"
            )

    def add_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            raise InvalidArgumentError(
                f"the request has more than {MAX_HEAD_BYTES} bytes besides tensor data, which is the limit"
            )

    def check_name(self, number: int, size_bytes: int) -> None:
        if number in _NAMES and size_bytes > MAX_NAME_BYTES:
            raise InvalidArgumentError(
                f"a name or datatype of the request has {size_bytes} bytes; the limit is {MAX_NAME_BYTES}"
            )


def _too_many(limit: int, what: str) -> ServingError:
    return InvalidArgumentError(
        f"the request has more than {limit} {what} in typed contents, which is the limit; "
        "raw_input_contents may have more"
    )


def _packed_count(message: Buffer, number: int, start: int, stop: int) -> int:
    """Elements of a packed field: of a fixed size, or each up to a byte without the highest bit."""
    item_size = _FLOATS.get(number)
    if item_size is not None:
        return (stop - start) // item_size
    view = memoryview(message)
    count = 0
    for position in range(start, stop, _COUNT_BYTES):
        piece = np.frombuffer(view[position : min(position + _COUNT_BYTES, stop)], dtype=np.int8)
        count += int(np.count_nonzero(piece >= 0))
    return count


def _fields(message: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type and the bounds of the value of each field; raises IndexError where one runs out."""
    while position < end:
        tag = message[position]
        if tag < 0x80 and tag & 7 == _LENGTH and (size := message[position + 1]) < 0x80:  # most are such
            start = position + 2
            position = start + size
            if position > end:
                raise IndexError
            yield tag >> 3, _LENGTH, start, position
            continue
        tag, position = _varint(message, position)
        kind = tag & 7
        start = position
        if kind == _LENGTH:
            size, start = _varint(message, position)
            position = start + size
        elif kind == _VARINT:
            position = _varint(message, position)[1]
        elif kind == _EIGHT_BYTES:
            position += 8
        elif kind == _FOUR_BYTES:
            position += 4
        else:
            raise IndexError
        if position > end:
            raise IndexError
        yield tag >> 3, kind, start, position


def _varint(message: Buffer, position: int) -> tuple[int, int]:
    value = message[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise IndexError
