"""What a compressed body or message becomes: counted before it is built, so that memory can be asked for first."""

from __future__ import annotations

import zlib
from typing import Final, Protocol

from trireme.core.elements import Buffer

MOST_INFLATED: Final = 1032
"""To how many times its size deflate can bring something."""
_READ_BYTES: Final = 16 << 10
_COUNTED_BYTES: Final = 256 << 10  # at a time; Python runs on between them


class Compressed(Protocol):
    """One compressed body or message. Its methods may run on a thread, and raise what its protocol tells clients."""

    @property
    def most_bytes(self) -> int:
        """The most that it may become."""

    def within(self, max_bytes: int) -> bytes | None:
        """As it was before; None where that is larger."""

    def count(self) -> int:
        """How large it becomes; nothing is kept."""

    def whole(self, size_bytes: int) -> bytes:
        """As it was before, where that is known to be so large."""


class TruncatedDataError(Exception):
    """The compressed data ends before its end."""


def inflate_within(data: Buffer, window: int, max_bytes: int) -> bytes | None:
    """The data inflated; None where it becomes larger. Raises zlib.error and TruncatedDataError."""
    inflater = zlib.decompressobj(window)
    inflated = inflater.decompress(data, max_bytes + 1)
    if len(inflated) > max_bytes:
        return None
    if not inflater.eof:
        raise TruncatedDataError
    return inflated


def count_inflated(data: Buffer, window: int, max_bytes: int) -> int | None:
    """How many bytes that would be; None where they are more. Raises zlib.error and TruncatedDataError."""
    inflater = zlib.decompressobj(window)
    view, count = memoryview(data), 0
    for start in range(0, len(view), _READ_BYTES):
        piece: Buffer = view[start : start + _READ_BYTES]
        while True:
            inflated = len(inflater.decompress(piece, _COUNTED_BYTES))
            count += inflated
            if count > max_bytes:
                return None
            if inflater.eof:
                return count
            piece = inflater.unconsumed_tail
            if not piece and inflated < _COUNTED_BYTES:
                break
    raise TruncatedDataError


def inflate_counted(data: Buffer, window: int, size_bytes: int) -> bytes:
    """The data inflated, into one piece of memory from the beginning: joined it would be there twice."""
    return zlib.decompress(data, window, max(size_bytes, 1))


def most_inflated(data: Buffer, max_bytes: int) -> int:
    """What data may become at most, where more than the limit is refused."""
    return min(len(data) * MOST_INFLATED, max_bytes)
