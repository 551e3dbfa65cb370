"""Long lists in slices: this module is not compiled, so that other threads get to run between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

SLICE = 32 << 10
"""Elements that are read at once, and bytes that are written at once: more would keep other threads from running for
long."""
TEXT_SLICE_BYTES = 256 << 10
"""Of strings that are written at once."""


def join_slices(encode: Callable[[list[Any]], bytes], elements: list[Any]) -> bytes:
    """What `encode` makes of each slice, joined."""
    return b"".join([encode(elements[start : start + SLICE]) for start in range(0, len(elements), SLICE)])


def slice_texts(elements: list[bytes]) -> Iterator[list[bytes]]:
    """The elements in groups of at most so many, and so many bytes; one that has more is a group of its own."""
    group: list[bytes] = []
    size_bytes = 0
    for element in elements:
        if group and (len(group) >= SLICE or size_bytes + len(element) > TEXT_SLICE_BYTES):
            yield group
            group, size_bytes = [], 0
        group.append(element)
        size_bytes += len(element)
    if group:
        yield group


def types_of(elements: list[Any]) -> set[type]:
    """The types that occur."""
    types: set[type] = set()
    for start in range(0, len(elements), SLICE):
        types.update(map(type, elements[start : start + SLICE]))
    return types
