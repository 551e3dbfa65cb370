"""The arguments of calls that are written as plain text: what their schema makes of them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any


def is_text(schema: Any) -> bool:
    """Whether an argument is a text whatever is written."""
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def argument_json(text: str, schema: Any) -> str:
    """The JSON of an argument. Where no type says otherwise, what is JSON is taken as such, the rest as a text."""
    kinds = _kinds(schema)
    found, is_read = _read(text.strip())
    if is_read and (not kinds or _kind_of(found) & kinds):
        try:
            return json.dumps(found, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):  # a number beyond those of JSON's readers
            pass
    return json.dumps(text, ensure_ascii=False)


def _kinds(schema: Any) -> set[str]:
    """The types that a schema allows; empty where it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {entry for entry in named if isinstance(entry, str)}
    found: set[str] = set()
    for key in ("anyOf", "oneOf"):
        for entry in schema.get(key) or ():
            kinds = _kinds(entry)
            if not kinds:
                return set()
            found |= kinds
    return found


def _kind_of(value: Any) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    if isinstance(value, list):
        return {"array"}
    return {"object"} if isinstance(value, dict) else set()


def _read(text: str) -> tuple[Any, bool]:
    """A value of JSON, or of Python, as some models write them; and whether it is one."""
    try:
        return json.loads(text, parse_constant=_refuse), True
    except (ValueError, RecursionError):
        pass
    try:
        found = ast.literal_eval(text)
        json.dumps(found)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None, False
    return found, isinstance(found, dict | list | bool | None)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
