"""Long lists in slices: this module is not compiled, so that other threads get to run between two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SLICE = 32 << 10
"""Elements that are read at once, and bytes that are written at once: more would keep other threads from running for
long."""


def join_slices(encode: Callable[[list[Any]], bytes], elements: list[Any]) -> bytes:
    """What `encode` makes of each slice, joined."""
    return b"".join([encode(elements[start : start + SLICE]) for start in range(0, len(elements), SLICE)])


def types_of(elements: list[Any]) -> set[type]:
    """The types that occur."""
    types: set[type] = set()
    for start in range(0, len(elements), SLICE):
        types.update(map(type, elements[start : start + SLICE]))
    return types
