"""Parsed JSON written again: by the fast writer, or in pieces where that does not take a value; both are done soon."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import orjson

from trireme.core.errors import InvalidArgumentError
from trireme.protocol.json_codec.reader import CONTAINERS
from trireme.protocol.json_codec.slices import types_of

MAX_LEVELS: Final = 254
"""Lists and objects inside each other; the fast writer has the same limit."""
MAX_PIECES: Final = 1 << 17
"""Values that are written one by one: some tenths of a second."""

_NOT_TEXT: Final = "bytes that are not UTF-8"
_NOT_FINITE: Final = "NaN or Infinity"

Entries = Iterator[tuple[str, Any]]
"""The rest of a container: what is written in front of each value, and the value."""


def encode_value(name: str, value: Any) -> bytes:
    """What a field holds; bytes that were not UTF-8 become escapes of lone surrogates, and NaN and Infinity are written
    as Python's own reader takes them. Raises InvalidArgumentError where it is nested too deeply, or has such bytes or
    numbers and very many values."""
    try:
        encoded = orjson.dumps(value)
    except orjson.JSONEncodeError:
        _check_levels(name, value)
        return "".join(_pieces(name, value, _NOT_TEXT)).encode()
    if b"null" in encoded and _has_non_finite(value):  # which the fast writer has made null
        return "".join(_pieces(name, value, _NOT_FINITE)).encode()
    return encoded


def _check_levels(name: str, value: Any) -> None:
    _, types = next(islice(_levels(value), MAX_LEVELS, None), ([], set()))
    if not types.isdisjoint(CONTAINERS):
        raise InvalidArgumentError(f"'{name}' is nested too deeply: it has more than {MAX_LEVELS} levels")


def _has_non_finite(value: Any) -> bool:
    return any(
        float in types and any(type(entry) is float and not math.isfinite(entry) for entry in level)
        for level, types in _levels(value)
    )


def _levels(value: Any) -> Iterator[tuple[list[Any], set[type]]]:
    """All values at each level, whatever holds them, and their types; the first level is the value itself."""
    level = [value]
    while level:
        types = types_of(level)
        yield level, types
        if types.isdisjoint(CONTAINERS):
            return
        inner: list[Any] = []
        for entry in level:
            if isinstance(entry, list):
                inner += entry
            elif isinstance(entry, dict):
                inner += entry.values()
        level = inner


def _pieces(name: str, value: Any, unusual: str) -> list[str]:
    pieces: list[str] = []
    open_containers: list[tuple[Entries, str]] = [(iter((("", value),)), "")]
    while open_containers:
        entries = open_containers[-1][0]
        for prefix, entry in entries:
            if len(pieces) > 2 * MAX_PIECES:
                raise InvalidArgumentError(f"'{name}' holds {unusual}, and more than {MAX_PIECES} values")
            pieces.append(prefix)
            if isinstance(entry, list):
                pieces.append("[")
                open_containers.append((_elements(entry), "]"))
                break
            if isinstance(entry, dict):
                pieces.append("{")
                open_containers.append((_members(entry), "}"))
                break
            pieces.append(json.dumps(entry))
        else:
            pieces.append(open_containers.pop()[1])
    return pieces


def _elements(values: list[Any]) -> Entries:
    comma = ""
    for value in values:
        yield comma, value
        comma = ","


def _members(members: dict[str, Any]) -> Entries:
    comma = ""
    for name, value in members.items():
        yield f"{comma}{json.dumps(name)}:", value
        comma = ","
