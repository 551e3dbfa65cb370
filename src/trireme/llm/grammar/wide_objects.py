"""Objects with many optional properties in the schemas of a grammar: any of them may come next, and the library follows
only so many side by side. It says so when such an object is written; here it is looked for before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from trireme.llm.grammar.sources import JSON_RULE, json_source

_MANY: Final = 400
"""The library follows 2000 items, and an optional property takes up to four of them."""
_MAX_FOUND: Final = 100
_MAX_DIGITS: Final = 9
_NO_SCHEMAS: Final = frozenset(("const", "enum", "default", "examples", "required", "$defs", "definitions"))
"""What they have is data, or is reached by a reference alone."""


def wide_objects(source: str) -> list[str]:
    """A grammar for each object that may be too wide, with its properties' names and without their schemas: it can be
    compiled and begun in a moment, which tells whether the object can be followed."""
    found: list[str] = []
    try:
        for root in _schemas(source):
            for schema in _within(root):
                shell = _shell(schema)
                if shell is not None and len(found) < _MAX_FOUND:
                    found.append(json_source(shell))
    except RecursionError:  # the check will tell of it
        pass
    return found


def _schemas(source: str) -> Iterator[Any]:
    if "properties" not in source.lower():
        return
    for grammar in json.loads(source)["grammars"]:
        if "json_schema" in grammar:
            yield grammar["json_schema"]
        for part in (grammar.get("lark_grammar") or "").split(JSON_RULE)[1:]:
            try:
                yield json.JSONDecoder().raw_decode(part)[0]
            except ValueError:  # a text of the grammar, and no schema
                pass


class _Document:
    """A whole schema, in which references lead from one place to another."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def referred(self, reference: object) -> Any:
        """What a reference within the document leads to; None: nothing."""
        if not isinstance(reference, str):
            return None
        resource, _, fragment = reference.partition("#")
        if fragment and fragment[0] != "/":
            return self._named.get(("$anchor", fragment))
        found = self._named.get(("$id", resource)) if resource else self._root
        for name in unquote(fragment).split("/")[1:]:
            if isinstance(found, list) and name.isdecimal() and len(name) < _MAX_DIGITS:
                found = found[int(name)] if int(name) < len(found) else None
            else:
                found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    @cached_property
    def _named(self) -> dict[tuple[str, str], Any]:
        """What has a name of its own, as it stands there; looked for only where a reference has one."""
        named: dict[tuple[str, str], Any] = {}
        waiting = [self._root]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                for key in ("$anchor", "$id"):
                    if isinstance(value.get(key), str):
                        named.setdefault((key, value[key]), value)
            if isinstance(value, dict | list):
                waiting += value.values() if isinstance(value, dict) else value
        return named


def _within(root: Any) -> Iterator[dict[str, Any]]:
    """A schema, and all that it uses."""
    document = _Document(root)
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict | list) or id(schema) in seen:
            continue
        seen.add(id(schema))  # lists as well: any number of references may lead to a long one
        if isinstance(schema, list):
            waiting += schema
        else:
            yield schema
            waiting += _parts(schema, document)


def _parts(schema: dict[str, Any], document: _Document) -> Iterator[Any]:
    for key, value in schema.items():
        if key in ("properties", "patternProperties"):
            yield from _mapping(schema, key).values()
        elif key == "$ref":
            yield document.referred(value)
        elif key not in _NO_SCHEMAS:
            yield value


def _shell(schema: dict[str, Any]) -> dict[str, Any] | None:
    """An object as a schema without what is in it; None for one that is not wide."""
    properties, patterns = _mapping(schema, "properties"), _mapping(schema, "patternProperties")
    required = schema.get("required")
    listed = required if isinstance(required, list) else []
    names = [name for name in dict.fromkeys(filter(_is_text, listed)) if name in properties]
    if len(properties) + len(patterns) - len(names) <= _MANY:
        return None
    return {
        "type": "object",
        "properties": {name: {"type": "null"} for name in properties},
        "patternProperties": {pattern: {"type": "null"} for pattern in patterns},
        "required": names,
        "additionalProperties": schema.get("additionalProperties") is not False,
    }


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _mapping(schema: dict[str, Any], key: str) -> dict[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}
