"""`ModelInferRequest` bytes with much in them besides raw data: counted before anything is built, read on a thread.

A few kilobytes inflate to millions of empty fields, each of which would become an object. This module is not compiled,
so that other threads get to run between two of its steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.protocol.v2.grpc_request import InferTemplate, parse_head, split, split_by_parsing

MAX_FIELDS: Final = 16_384
"""Inputs, outputs, parameters, raw contents, and the fields of each of them, together."""
MAX_STRINGS: Final = 4 << 20
"""Elements of `bytes_contents` in one request."""
MAX_NUMBERS: Final = 16 << 20
"""Elements of all other typed contents in one request."""

_INPUTS: Final = 5
_NESTED: Final = (4, 6)  # parameters and outputs
_INPUT_CONTENTS: Final = 5
_BYTES_CONTENTS: Final = 8
_FLOATS: Final = {6: 4, 7: 8}  # fp32_contents and fp64_contents: bytes of an element
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_COUNT_BYTES: Final = 1 << 20

DecodedRequest = tuple[InferTemplate, str, list[Buffer]]
"""Template, id and raw tensor data."""


def decode_long(message: Buffer) -> DecodedRequest:
    """The same as `InferRequestDecoder.decode` for a message that it calls long; raises ServingError."""
    check_counts(message)
    try:
        runs, request_id, raw_contents = split(message, MAX_FIELDS)
    except (IndexError, UnicodeDecodeError):
        runs, request_id, raw_contents = split_by_parsing(message)
    template = parse_head(b"".join(runs))
    template.decode_contents()
    return template, request_id, raw_contents


def decode_long_or_refuse(message: Buffer) -> DecodedRequest | ServingError:
    """The same with the error as a result."""
    try:
        return decode_long(message)
    except ServingError as error:
        return error


def check_counts(message: Buffer) -> None:
    """Raises InvalidArgumentError where there is more in the message than any model takes, InternalError where it is no
    message at all."""
    counts = _Counts()
    try:
        for number, kind, start, stop in _fields(message, 0, len(message)):
            counts.add_field()
            if kind == _LENGTH and number == _INPUTS:
                counts.add_input(message, start, stop)
            elif kind == _LENGTH and number in _NESTED:
                counts.add_nested(message, start, stop)
    except IndexError:
        raise InternalError("Unable to parse request") from None


def check_fields(message: Buffer) -> None:
    """The same for the message of another call, of which only the outermost fields are counted."""
    counts = _Counts()
    try:
        for _ in _fields(message, 0, len(message)):
            counts.add_field()
    except IndexError:
        raise InternalError("Unable to parse request") from None


class _Counts:
    """What was found so far; each method raises where it is too much."""

    def __init__(self) -> None:
        self._fields = self._strings = self._numbers = 0

    def add_field(self) -> None:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise InvalidArgumentError(
                f"the request has more than {MAX_FIELDS} fields, which is the limit for inputs, outputs, parameters "
                "and raw contents together"
            )

    def add_nested(self, message: Buffer, start: int, stop: int) -> None:
        """What is in a parameter or an output."""
        for _ in _fields(message, start, stop):
            self.add_field()

    def add_input(self, message: Buffer, start: int, stop: int) -> None:
        for number, kind, begin, end in _fields(message, start, stop):
            self.add_field()
            if kind == _LENGTH and number == _INPUT_CONTENTS:
                self._add_contents(message, begin, end)

    def _add_contents(self, message: Buffer, start: int, stop: int) -> None:
        for number, kind, begin, end in _fields(message, start, stop):
            if number == _BYTES_CONTENTS:
                self._strings += 1
                if self._strings > MAX_STRINGS:
                    raise _too_many(MAX_STRINGS, "strings")
                continue
            self._numbers += 1 if kind != _LENGTH else _packed_count(message, number, begin, end)
            if self._numbers > MAX_NUMBERS:
                raise _too_many(MAX_NUMBERS, "numbers")


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
