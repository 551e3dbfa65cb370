"""JSON that is read as deeply as those who go through its values can go. Python's own reader ends at a depth that
differs from version to version: older ones stop at some thousand levels, from 3.14 on it is the size of the stack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from trireme.core.threads.giving_way import give_way

MAX_LEVELS: Final = 254
"""Lists and objects inside each other; a call for each level, or two, leave most of Python's own limit."""
_CONTAINERS: Final = frozenset((list, dict))
_AT_ONCE: Final = 8192  # members that are looked at before other threads have their turn

Pairs = Callable[[Any], Iterable[tuple[str, Any]]]
"""Gives the members of an object, with their names."""


class DeepJsonError(ValueError):
    """A text with more levels than are read, with the reason in words that go on a sentence about it."""

    def __init__(self) -> None:
        super().__init__(f"it is nested too deeply: it has more than {MAX_LEVELS} levels")


def read_json(text: str | bytes) -> Any:
    """The value of a text; raises DeepJsonError, and ValueError where it is no JSON."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise DeepJsonError from None
    if has_more_levels(text, value, MAX_LEVELS):
        raise DeepJsonError
    return value


def has_more_levels(text: str | bytes, value: Any, most: int, pairs_of: Mapping[type, Pairs] | None = None) -> bool:
    """Whether the value of a text has more lists and objects inside each other. `pairs_of` are what else its reader
    makes of objects, with what gives their members."""
    return _opened(text) > most and _has_more(value, most, pairs_of or {})


def _opened(text: str | bytes) -> int:
    """At least as many as there are levels; few texts have so many at all."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _has_more(value: Any, most: int, pairs_of: Mapping[type, Pairs]) -> bool:
    """Level by level: a call for each would need the stack that is spared here."""
    level = [value]
    for _ in range(most):
        below: list[Any] = []
        for entry in level:
            kind = type(entry)
            if kind is list:
                below += _containers(entry, pairs_of)
            elif kind is dict:
                below += _containers(list(entry.values()), pairs_of)
            elif kind in pairs_of:
                below += _containers([member for _, member in pairs_of[kind](entry)], pairs_of)
        level = below
        if not level:
            return False
    return True


def _containers(members: list[Any], pairs_of: Mapping[type, Pairs]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(members), _AT_ONCE):
        give_way()
        some = members[start : start + _AT_ONCE]
        if not (_CONTAINERS.isdisjoint(map(type, some)) and pairs_of.keys().isdisjoint(map(type, some))):
            found += [member for member in some if type(member) in _CONTAINERS or type(member) in pairs_of]
    return found
