"""Parsed JSON written again: by the fast writer, or in pieces where that does not take a value; both are done soon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import orjson

from trireme.core.errors import InvalidArgumentError

MAX_LEVELS: Final = 254
"""Lists and objects inside each other; the fast writer has the same limit."""
MAX_PIECES: Final = 1 << 17
"""Values that are written one by one: some tenths of a second."""

Entries = Iterator[tuple[str, Any]]
"""The rest of a container: what is written in front of each value, and the value."""


def encode_value(name: str, value: Any) -> bytes:
    """What a field holds; bytes that were not UTF-8 become escapes of lone surrogates. Raises InvalidArgumentError
    where it is nested too deeply, or has such bytes and very many values."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return "".join(_pieces(name, value)).encode()


def _pieces(name: str, value: Any) -> list[str]:
    pieces: list[str] = []
    open_containers: list[tuple[Entries, str]] = [(iter((("", value),)), "")]
    while open_containers:
        entries = open_containers[-1][0]
        for prefix, entry in entries:
            if len(pieces) > 2 * MAX_PIECES:
                raise _too_many(name)
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
        if len(open_containers) > MAX_LEVELS:
            raise InvalidArgumentError(f"'{name}' is nested too deeply: it has more than {MAX_LEVELS} levels")
    return pieces


def _too_many(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"'{name}' holds bytes that are not UTF-8, and more than {MAX_PIECES} values")


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
