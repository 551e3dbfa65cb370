"""JSON text to values and back, as fast as the text allows: orjson, then the standard library, then the exact reader.

Members of an object keep their first value where a name is repeated; `members` gives all of them in order.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import orjson

from trireme.core.errors import InternalError, InvalidArgumentError
from trireme.core.reading.json_levels import Pairs, has_more_levels
from trireme.protocol.json_codec.reader import (
    CONTAINERS,
    MAX_DEPTH,
    JsonLimitError,
    JsonSyntaxError,
    RepeatedMembers,
    check_member_count,
    finite_number,
    make_object,
    read,
    whole_number,
)
from trireme.protocol.json_codec.slices import Shorten, types_of
from trireme.protocol.lone_surrogates import bytes_of

QUICK_BYTES: Final = 128 << 10
"""Longer texts may take a while, and belong into a thread."""
WHOLE_BYTES: Final = 1 << 20
"""Longer texts are read in pieces: a fast parser does not let other threads run until it is done."""

_VALUE_BYTES: Final = 100  # as measured
_NEAR_BYTES: Final = 64
"""As far back a mistake is looked for."""
_TEXT_BYTES: Final = 6  # of a long string with one character that takes four bytes, in pieces and as one
_QUICK_EXACT_BYTES: Final = 4 << 10  # of a text that the fast parser does not take

_PAIRS_OF: Final[Mapping[type, Pairs]] = {RepeatedMembers: attrgetter("pairs")}
_TO_ESCAPE: Final = re.compile(rb'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
}


class SlowTextError(Exception):
    """A text takes long to read although it is short; it belongs into a thread."""


def parse(text: bytes, is_quick: bool = False, shorten: Shorten = list) -> Any:
    """The value of a request's JSON text; raises InternalError with the reason and the byte offset, and
    InvalidArgumentError where it is too deep or holds too much. With `is_quick` SlowTextError, where it takes long.
    In a long text `shorten` is asked what is kept of list elements."""
    try:
        if len(text) > WHOLE_BYTES:
            return _parse_exactly(text, shorten)
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            if is_quick and len(text) > _QUICK_EXACT_BYTES:
                raise SlowTextError from None
            return _parse_tolerantly(text)
        if text.count(b":") != _member_count(value):
            return _parse_repeated(text, value)
        return value
    except JsonLimitError as error:
        raise InvalidArgumentError(str(error)) from None


def reading_bytes(text: bytes) -> int:
    """What a text takes at most while it is read, and its tensors are made: in pieces, and as values. Those of
    short strings take most."""
    commas = sum(text.count(b",", start, start + WHOLE_BYTES) for start in range(0, len(text), WHOLE_BYTES))
    return _TEXT_BYTES * len(text) + _VALUE_BYTES * commas


def members(value: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Every member in the order of the text, repeated ones too."""
    return value.pairs if type(value) is RepeatedMembers else value.items()


def with_last_members(value: Any) -> Any:
    """The value, which is changed, with the last of each repeated member: as Python's own reader has it."""
    root = [value]
    pending: list[Any] = [root]
    while pending:
        holder = pending.pop()
        if type(holder) is list and types_of(holder).isdisjoint(CONTAINERS):
            continue
        for key, entry in holder.items() if type(holder) is dict else enumerate(holder):
            if type(entry) is RepeatedMembers:
                entry = holder[key] = dict(entry.pairs)
            if type(entry) is list or type(entry) is dict:
                pending.append(entry)
    return root[0]


def encode_string(text: str) -> bytes:
    """A JSON string with its quotes, whatever the text; what came in as bytes that are not UTF-8 goes out as those
    bytes."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return escape_bytes(bytes_of(text))


def escape_bytes(raw: bytes) -> bytes:
    """A JSON string of raw bytes, with its quotes, whether they are UTF-8 or not."""
    return b'"%b"' % _TO_ESCAPE.sub(_escape, raw)


def encode_number(value: float) -> bytes:
    """A number, or one of the literals NaN, Infinity and -Infinity that JSON proper has not."""
    if math.isnan(value):
        return b"NaN"
    if math.isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    return orjson.dumps(value)


def encode_scalar(value: bool | int | float | str) -> bytes:
    """A parameter's value."""
    if isinstance(value, str):
        return encode_string(value)
    if isinstance(value, float):
        return encode_number(value)
    if not -(2**63) <= value < 2**64:
        return b"%d" % value
    return orjson.dumps(value)


def encode_error(message: str) -> bytes:
    """The body of every HTTP error."""
    return b'{"error":%b}' % encode_string(message)


def _escape(match: re.Match[bytes]) -> bytes:
    byte = match.group()
    return _SHORT_ESCAPES.get(byte) or b"\\u%04X" % byte[0]


def _member_count(value: Any) -> int:
    """The number of members in the value's objects, or fewer where counting would cost: lists are entered only
    where they begin with an object. Each member has one colon in the text, so a text with exactly as many colons
    repeats no name. Raises JsonLimitError where an object has too many."""
    count = 0
    pending = [value]
    while pending:
        entry = pending.pop()
        if type(entry) is dict:
            check_member_count(len(entry))
            count += len(entry)
            for member in entry.values():
                if type(member) is str:
                    continue
                if type(member) is dict:
                    pending.append(member)
                elif type(member) is list and member and type(member[0]) is dict:
                    pending += member
    return count


def _parse_repeated(text: bytes, value: Any) -> Any:
    """The same valid text again with every member kept; the value itself where that takes too deep a stack."""
    try:
        return json.loads(text, object_pairs_hook=make_object)
    except JsonLimitError:
        raise
    except (RecursionError, ValueError):
        return value


def _parse_tolerantly(text: bytes) -> Any:
    if text.find(b"\\u") < 0:  # the standard library would let lone surrogates pass
        try:
            decoded = text.decode("utf-8", "surrogateescape")
            value = json.loads(
                decoded, object_pairs_hook=make_object, parse_float=finite_number, parse_int=whole_number
            )
            # newer versions of Python read as deeply as their stack is large
            if not has_more_levels(text, value, MAX_DEPTH, _PAIRS_OF):
                return value
        except JsonLimitError:
            raise
        except (RecursionError, ValueError, OverflowError):
            pass
    return _parse_exactly(text)


def _parse_exactly(text: bytes, shorten: Shorten = list) -> Any:
    try:
        return read(text, shorten)
    except JsonSyntaxError as error:
        hint = _hint(text, error.offset, str(error))
        raise InternalError(f"failed to parse the request JSON buffer: {error}{hint}") from None


def _hint(text: bytes, offset: int, reason: str) -> str:
    """What was probably meant by what stands there; only a few bytes around the place are looked at."""
    wrong = text[offset : offset + 1]
    if wrong == b"'":
        return "; JSON wants double quotes"
    if wrong in (b"]", b"}") and text[max(0, offset - _NEAR_BYTES) : offset].rstrip().endswith(b","):
        return "; there is a comma too many before it"
    if text.startswith((b"True", b"False"), offset) or text.startswith(b"None", max(0, offset - 1)):
        return "; JSON writes true, false and null"
    if wrong.isalpha() and reason.startswith("Missing a name"):
        return "; JSON wants names in double quotes"
    return ""
