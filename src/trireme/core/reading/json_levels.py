"""JSON that is read as deeply as those who go through its values can go. Python's own reader ends at a depth that
differs from version to version: older ones stop at some thousand levels, from 3.14 on it is the size of the stack."""

from __future__ import annotations

import json
from typing import Any, Final

MAX_LEVELS: Final = 254
"""Lists and objects inside each other; a call for each level, or two, leave most of Python's own limit."""
_CONTAINERS: Final = frozenset((list, dict))


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
    if _opened(text) > MAX_LEVELS and _has_more_levels(value, MAX_LEVELS):
        raise DeepJsonError
    return value


def _opened(text: str | bytes) -> int:
    """At least as many as there are levels; few texts have so many at all."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _has_more_levels(value: Any, most: int) -> bool:
    """Level by level: a call for each would need the stack that is spared here."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(most):
        below: list[Any] = []
        for entry in level:
            members = entry.values() if type(entry) is dict else entry
            if not _CONTAINERS.isdisjoint(map(type, members)):
                below += members
        level = [entry for entry in below if type(entry) in _CONTAINERS]
        if not level:
            return False
    return True
