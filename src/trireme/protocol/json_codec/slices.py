"""Long lists in slices: this module is not compiled, so that other threads get to run between two of them."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from typing import Any

from trireme.core.threads.giving_way import give_way

SLICE = 32 << 10
"""Elements that are read at once, and bytes that are written at once: more would keep other threads from running for
long."""
STRINGS_SLICE = 4096
"""Strings that are read at once."""
TEXT_SLICE_BYTES = 256 << 10
"""Of strings that are written at once."""

Shorten = Callable[[list[Any]], list[Any]]
"""What is kept of list elements that were read together, in place of them."""

_ERRORS = "surrogateescape"
_ESCAPED = re.compile("[\udc80-\udcff]+")


def join_slices(encode: Callable[[list[Any]], bytes], elements: list[Any], size: int = SLICE) -> bytes:
    """What `encode` makes of each slice, joined."""
    encoded = []
    for start in range(0, len(elements), size):
        give_way()
        encoded.append(encode(elements[start : start + size]))
    return b"".join(encoded)


def slice_texts(elements: list[bytes]) -> Iterator[list[bytes]]:
    """The elements in groups of at most so many, and so many bytes; one that has more is a group of its own."""
    group: list[bytes] = []
    size_bytes = 0
    for element in elements:
        if group and (len(group) >= SLICE or size_bytes + len(element) > TEXT_SLICE_BYTES):
            give_way()
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
        give_way()
        types.update(map(type, elements[start : start + SLICE]))
    return types


class TextJoiner:
    """A text of pieces, of which some are bytes that may begin or end within a character; those that are not UTF-8
    become surrogate escapes, which takes a hundred times as long as reading characters does."""

    __slots__ = ("_decoder", "_pieces")

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")(_ERRORS)
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        """Whole characters: bytes in front that have not become one are none."""
        self._pieces.append(self._decoder.decode(b"", True))
        self._pieces.append(text)

    def add_bytes(self, raw: bytes) -> int:
        """Of a size that does not take long; how many of them, and of those before, are found not to be UTF-8."""
        piece = self._decoder.decode(raw)
        self._pieces.append(piece)
        return len(piece) - len(_ESCAPED.sub("", piece))

    def join(self) -> str:
        """The text."""
        self.add("")
        return "".join(self._pieces)


def encode_text(text: str) -> bytes:
    """The bytes that a text stands for, surrogate escapes included."""
    if len(text) <= TEXT_SLICE_BYTES:
        return text.encode("utf-8", _ERRORS)
    starts = range(0, len(text), TEXT_SLICE_BYTES)
    return b"".join([text[start : start + TEXT_SLICE_BYTES].encode("utf-8", _ERRORS) for start in starts])
