"""The exact JSON reader: Triton's grammar with its error reasons and byte offsets, for texts the fast parsers refuse.

It accepts what Triton accepts beyond the standard (NaN, Inf and Infinity, bytes that are not UTF-8) and keeps repeated
members. Runs of list elements are handed to fast parsers in pieces, so that a long text never holds up other threads
for long; what has to be read value by value is slow, and bounded.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from trireme.core.threads.giving_way import give_way
from trireme.protocol.json_codec.runs import ELEMENT_RUN, NUMBER_RUN, TEXT_RUN
from trireme.protocol.json_codec.slices import Shorten, TextJoiner

_SPACE = re.compile(rb"[ \n\r\t]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX4 = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPES = {34: '"', 92: "\\", 47: "/", 98: "\b", 102: "\f", 110: "\n", 114: "\r", 116: "\t"}
_WORDS: dict[int, tuple[bytes, Any]] = {116: (b"true", True), 102: (b"false", False), 110: (b"null", None)}

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _FIRST_PLAIN = 34, 92, 44, 58, 45, 32
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT, _LOWER_U = 91, 93, 123, 125, 117
_MAX_INT, _MIN_INT = 2**64 - 1, -(2**63)

NO_NAME = "Missing a name for object member."
MAX_STEPS = 1 << 17
"""Values and containers of one text that are read one by one: half a second of a thread that all clients share."""
MAX_MEMBERS = 16_384
"""Of one object; no request has a use for more."""
MAX_NAME_CHARS = 64 << 10
"""Of a member's name: names are told in errors, and looked up."""

MAX_DEPTH = 1024
"""Lists and objects inside each other; the fast parser has the same limit."""
MAX_VALUES = 4 << 20
"""Values of one text: as objects they take sixteen times the memory of the shortest text, and more."""
_VALUES_PER_LIST = 4  # which the garbage collector looks at, and nothing else runs meanwhile

_RUN_BYTES = 32 << 10
_MAX_RAW_BYTES = 1 << 20
"""Of one string, that are not UTF-8: they take a hundred times as long to read, and twice the memory."""
_MAX_NUMBER_BYTES = 32 << 10  # as many as a run may have
_LISTS_PER_STEP = 64  # in a run, where they cost less


class RepeatedMembers(dict[str, Any]):
    """An object in whose text a name occurs more than once: look-ups give the first, `pairs` has all in order."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self.pairs = pairs


CONTAINERS: tuple[type, ...] = (list, dict, RepeatedMembers)
"""The types of values that hold others."""


class JsonSyntaxError(ValueError):
    """Where and why a text is not JSON."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at {offset}")
        self.reason = reason
        self.offset = offset


class JsonLimitError(ValueError):
    """There is more in a text than is read; says what the limit is."""


def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of the members, or RepeatedMembers where a name occurs more than once; raises JsonLimitError."""
    check_member_count(len(pairs))
    members = dict(pairs)
    return members if len(members) == len(pairs) else RepeatedMembers(pairs)


def check_member_count(count: int) -> None:
    """Raises JsonLimitError where an object has more members than are read."""
    if count > MAX_MEMBERS:
        raise JsonLimitError(f"an object of the JSON text has more than {MAX_MEMBERS} members, which is the limit")


def finite_number(literal: str) -> float:
    """The double that a number stands for; raises ValueError where it is too big."""
    number = float(literal)
    if math.isinf(number):
        raise ValueError("too big")
    return number


def whole_number(literal: str) -> int | float:
    """Integers beyond 64 bits are doubles, as in the other parsers."""
    number = int(literal) if len(literal) <= 20 else finite_number(literal)
    if isinstance(number, int) and not _MIN_INT <= number <= _MAX_INT:
        return float(number)
    return number


def read(text: bytes, shorten: Shorten = list) -> Any:
    """The value of the text; raises JsonSyntaxError and JsonLimitError. Of a run `shorten` says what is kept."""
    start = _skip(text, 0)
    if start == len(text):
        raise JsonSyntaxError("The document is empty.", start)
    value, position = _read_document(text, start, shorten)
    position = _skip(text, position)
    if position != len(text):
        raise JsonSyntaxError("The document root must not be followed by other values.", position)
    return value


def _read_document(text: bytes, position: int, shorten: Shorten) -> tuple[Any, int]:
    """Reads one value of any depth with an explicit stack of open containers, each with its pending member name."""
    stack: list[tuple[list[Any], str | None]] = []
    items: list[Any] = []  # of the innermost open container; (name, value) pairs for an object
    name: str | None = None  # of the member being read, None inside a list
    steps = values_in_runs = no_run_before = 0
    while True:
        if name is None and stack and position >= no_run_before:
            position, no_run_before, weight, count = _take_run(text, position, items, shorten)
            steps += weight
            values_in_runs += count
        steps += 1
        _check_steps(steps)
        if steps + values_in_runs > MAX_VALUES:
            raise JsonLimitError(
                f"the JSON text holds more than {MAX_VALUES} values, which is the limit, and a list counts as "
                f"{_VALUES_PER_LIST} more: send the data of a tensor as one flat list, or as binary data"
            )
        first = text[position] if position < len(text) else 0
        if first in (_OPEN_LIST, _OPEN_OBJECT):
            position = _skip(text, position + 1)
            is_empty = text[position : position + 1] == (b"]" if first == _OPEN_LIST else b"}")
            if not is_empty:
                if len(stack) >= MAX_DEPTH:
                    raise JsonLimitError(f"JSON nesting depth exceeds maximum allowed limit ({MAX_DEPTH})")
                stack.append((items, name))
                items, name = [], None
                if first == _OPEN_OBJECT:
                    name, position, weight = _read_name(text, position, 1)
                    steps += weight
                continue
            value: Any = [] if first == _OPEN_LIST else {}
            position += 1
        else:
            value, position, weight = _read_scalar(text, position, first)
            steps += weight
        while True:  # the value is complete: add it, and close the containers that end behind it
            if not stack:
                return value, position
            items.append(value if name is None else (name, value))
            position = _skip(text, position)
            next_byte = text[position] if position < len(text) else 0
            if next_byte == _COMMA:
                position = _skip(text, position + 1)
                if name is not None:
                    name, position, weight = _read_name(text, position, len(items) + 1)
                    steps += weight
                break
            if next_byte != (_CLOSE_LIST if name is None else _CLOSE_OBJECT):
                raise JsonSyntaxError(_missing_comma(name), position)
            value = items if name is None else make_object(items)
            items, name = stack.pop()
            position += 1


def _take_run(text: bytes, position: int, items: list[Any], shorten: Shorten) -> tuple[int, int, int, int]:
    """Adds a run of list elements to the items. Returns the position behind it, the one from which the next run may
    be tried, how many steps it counts for, and how many values it has."""
    give_way()
    end = position + _RUN_BYTES
    last = text.rfind(b",", position, end)
    if last > position:
        flat = _parse_flat(text[position:last])
        if flat is not None:
            items += shorten(flat)
            return _skip(text, last + 1), last + 1, 0, len(flat)
    match = NUMBER_RUN.match(text, position, end) or ELEMENT_RUN.match(text, position, end)
    if match is None:
        return position, position + 1, 0, 0
    run = match.group()
    values = _parse_run(b"[%b]" % run[:-1])
    if values is None:  # something that only Triton knows, or an error: value by value
        return position, match.end(), 0, 0
    items += shorten(values)
    list_count = run.count(b"[")
    value_count = run.count(b",") + _VALUES_PER_LIST * list_count if list_count else len(values)
    return _skip(text, match.end()), match.end(), list_count // _LISTS_PER_STEP, value_count


def _parse_flat(piece: bytes) -> list[Any] | None:
    """The values of a piece of a list that ends in front of a comma; None where that is none between two elements, or
    where there may be something else than numbers, words and strings."""
    if b"[" in piece or b"{" in piece:
        return None
    try:
        values: list[Any] = orjson.loads(b"[%b]" % piece)
    except orjson.JSONDecodeError:
        return None
    return values


def _parse_run(run: bytes) -> list[Any] | None:
    """The values of a list without objects; None where neither fast parser takes it."""
    try:
        values: list[Any] = orjson.loads(run)
    except orjson.JSONDecodeError:
        if b"\\u" in run:  # the standard library would let lone surrogates pass
            return None
        try:
            decoded = run.decode("utf-8", "surrogateescape")
            values = json.loads(decoded, parse_float=finite_number, parse_int=whole_number)
        except ValueError:
            return None
    return values


def _missing_comma(name: str | None) -> str:
    if name is None:
        return "Missing a comma or ']' after an array element."
    return "Missing a comma or '}' after an object member."


def _skip(text: bytes, position: int) -> int:
    while True:  # in pieces, too
        match = _SPACE.match(text, position, position + _RUN_BYTES)
        end = match.end() if match else position
        if end < position + _RUN_BYTES:
            return end
        position = end


def _check_steps(steps: int) -> None:
    if steps > MAX_STEPS:
        raise JsonLimitError(
            f"the JSON text has more than {MAX_STEPS} members, containers and unusual values, which is the limit"
        )


def _read_name(text: bytes, position: int, number: int) -> tuple[str, int, int]:
    """The name of a member that is the object's first, second and so on, the position of its value, and how many steps
    it counts for."""
    check_member_count(number)
    if text[position : position + 1] != b'"':
        raise JsonSyntaxError(NO_NAME, position)
    name, position, steps = _read_string(text, position + 1)
    if len(name) > MAX_NAME_CHARS:
        raise JsonLimitError(f"a name in the JSON text has more than {MAX_NAME_CHARS} characters, which is the limit")
    position = _skip(text, position)
    if text[position : position + 1] != b":":
        raise JsonSyntaxError("Missing a colon after a name of object member.", position)
    return name, _skip(text, position + 1), steps


def _read_scalar(text: bytes, position: int, first: int) -> tuple[Any, int, int]:
    if first == _QUOTE:
        return _read_string(text, position + 1)
    word = _WORDS.get(first)
    if word is not None:
        return word[1], _expect(text, position, word[0]), 0
    return *_read_number(text, position), 0


def _expect(text: bytes, position: int, word: bytes) -> int:
    for byte in word:
        if position >= len(text) or text[position] != byte:
            raise JsonSyntaxError("Invalid value.", position)
        position += 1
    return position


def _read_number(text: bytes, start: int) -> tuple[int | float, int]:
    match = _NUMBER.match(text, start, start + _MAX_NUMBER_BYTES + 1)
    if match is None:
        return _read_constant(text, start)
    end = match.end()
    if end - start > _MAX_NUMBER_BYTES:
        raise JsonLimitError(f"a number in the JSON text has more than {_MAX_NUMBER_BYTES} digits, which is the limit")
    following = text[end : end + 1]
    if following == b"." and match.group(1) is None and match.group(2) is None:
        raise JsonSyntaxError("Miss fraction part in number.", end + 1)
    if following in (b"e", b"E") and match.group(2) is None:
        signed = text[end + 1 : end + 2] in (b"+", b"-")
        raise JsonSyntaxError("Miss exponent in number.", end + 1 + signed)
    if match.group(1) is None and match.group(2) is None and end - start <= 20:
        integer = int(match.group())
        if _MIN_INT <= integer <= _MAX_INT:
            return integer, end
    number = float(match.group())
    if math.isinf(number):
        raise JsonSyntaxError("Number too big to be stored in double.", start)
    return number, end


def _read_constant(text: bytes, position: int) -> tuple[float, int]:
    """NaN, Inf and Infinity, each with an optional minus."""
    sign = 1.0
    if text[position : position + 1] == b"-":
        sign, position = -1.0, position + 1
    if text[position : position + 1] == b"N":
        return math.nan, _expect(text, position, b"NaN")
    end = _expect(text, position, b"Inf")
    if text[end : end + 1] == b"i":
        end = _expect(text, end, b"inity")
    return sign * math.inf, end


def _read_string(text: bytes, position: int) -> tuple[str, int, int]:
    """The string whose opening quote is just behind, the position behind it, and how many steps it counts for; bytes
    that are not UTF-8 become surrogate escapes."""
    plain = _PLAIN.match(text, position, position + _RUN_BYTES)
    if plain is not None and text[plain.end() : plain.end() + 1] == b'"':  # as most are
        return plain.group().decode("utf-8", "surrogateescape"), plain.end() + 1, 0
    parts = TextJoiner()
    steps = raw_bytes = 0
    while True:
        match = TEXT_RUN.match(text, position, position + _RUN_BYTES)
        if match is not None:  # in pieces, so that other threads get to run in between
            parts.add(orjson.loads(b'"%b"' % match.group()))
            position = match.end()
            continue
        match = _PLAIN.match(text, position, position + _RUN_BYTES)
        end = match.end() if match else position
        if end - position == _RUN_BYTES > 4:
            end = _begin_of_character(text, end)  # so that a run can follow
        raw_bytes += parts.add_bytes(text[position:end])
        if raw_bytes > _MAX_RAW_BYTES:
            raise JsonLimitError(
                f"a string in the JSON text has more than {_MAX_RAW_BYTES} bytes that are not UTF-8, which is the "
                "limit: send them as binary data"
            )
        if end >= len(text):
            raise JsonSyntaxError("Missing a closing quotation mark in string.", end)
        position = end
        if text[end] == _QUOTE:
            return parts.join(), end + 1, steps
        if text[end] == _BACKSLASH:
            piece, position = _read_escape(text, end)
            parts.add(piece)
        elif text[end] < _FIRST_PLAIN:
            raise JsonSyntaxError("Invalid escape character in string.", end)
        steps += 1
        _check_steps(steps)


def _begin_of_character(text: bytes, position: int) -> int:
    """Of the one that goes on at the position, if one does."""
    for begin in range(position, position - 4, -1):
        if begin < len(text) and text[begin] & 0xC0 != 0x80:
            return begin
    return position


def _read_escape(text: bytes, backslash: int) -> tuple[str, int]:
    kind = text[backslash + 1] if backslash + 1 < len(text) else 0
    if kind in _ESCAPES:
        return _ESCAPES[kind], backslash + 2
    if kind != _LOWER_U:
        raise JsonSyntaxError("Invalid escape character in string.", backslash)
    code = _read_hex(text, backslash + 2, backslash)
    end = backslash + 6
    if 0xD800 <= code <= 0xDFFF:
        if code > 0xDBFF or text[end : end + 2] != b"\\u":
            raise JsonSyntaxError("The surrogate pair in string is invalid.", backslash)
        low = _read_hex(text, end + 2, backslash)
        if not 0xDC00 <= low <= 0xDFFF:
            raise JsonSyntaxError("The surrogate pair in string is invalid.", backslash)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        end += 6
    return chr(code), end


def _read_hex(text: bytes, position: int, backslash: int) -> int:
    match = _HEX4.match(text, position)
    if match is None:
        raise JsonSyntaxError("Incorrect hex digit after \\u escape in string.", backslash)
    return int(match.group(), 16)
