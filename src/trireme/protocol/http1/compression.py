"""Content codings of HTTP bodies: the choice by Accept-Encoding, bounded inflation, deflation."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeVar

from trireme.core.elements import Buffer
from trireme.core.errors import InvalidArgumentError
from trireme.protocol.inflating import (
    TruncatedDataError,
    count_inflated,
    inflate_counted,
    inflate_within,
    most_inflated,
)

T = TypeVar("T")

IDENTITY: Final = "identity"
_CODINGS: Final = frozenset({"gzip", "deflate", IDENTITY})
_GZIP_WINDOW: Final = zlib.MAX_WBITS + 16
_ANY_WINDOW: Final = zlib.MAX_WBITS + 32  # zlib finds out which of the two wrappers it is


def choose_coding(accept_encoding: str) -> str:
    """`gzip`, `deflate` or `identity`: the highest quality wins, the first of equals, identity where none fits."""
    best, best_quality = IDENTITY, 0.0
    for entry in accept_encoding.split(","):
        coding, *settings = (part.strip().lower() for part in entry.split(";"))
        quality = _quality(settings)
        if coding in _CODINGS and quality > best_quality:
            best, best_quality = coding, quality
    return best


class CompressedBody:
    """A body behind a gzip or zlib wrapper, up to a size; raises InvalidArgumentError where it is none or grows too
    large."""

    __slots__ = ("_body", "_max_bytes")

    def __init__(self, body: Buffer, max_size_bytes: int) -> None:
        self._body = body
        self._max_bytes = max_size_bytes

    @property
    def most_bytes(self) -> int:
        return most_inflated(self._body, self._max_bytes)

    def within(self, max_bytes: int) -> bytes | None:
        inflated = _told(lambda: inflate_within(self._body, _ANY_WINDOW, min(max_bytes, self._max_bytes)), self._body)
        if inflated is None and max_bytes >= self._max_bytes:
            raise self._too_large()
        return inflated

    def count(self) -> int:
        size_bytes = _told(lambda: count_inflated(self._body, _ANY_WINDOW, self._max_bytes), self._body)
        if size_bytes is None:
            raise self._too_large()
        return size_bytes

    def whole(self, size_bytes: int) -> bytes:
        return inflate_counted(self._body, _ANY_WINDOW, size_bytes)

    def _too_large(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"Decompressed data size exceeds the maximum allowed value of {self._max_bytes} bytes. "
            "Use --http-max-input-size to increase the limit."
        )


def _told(inflate: Callable[[], T], body: Buffer) -> T:
    """What is wrong with a body, as its client is told."""
    if not body:
        raise InvalidArgumentError("nothing to be decompressed")
    try:
        return inflate()
    except zlib.error as error:
        raise InvalidArgumentError(f"failed to decompress the request body: {error}") from None
    except TruncatedDataError:
        raise InvalidArgumentError("failed to decompress the request body: it ends early") from None


def compress(parts: list[Buffer], coding: str) -> bytes:
    """The parts joined and compressed; deflate is zlib-wrapped."""
    deflater = zlib.compressobj(wbits=_GZIP_WINDOW if coding == "gzip" else zlib.MAX_WBITS)
    compressed = [deflater.compress(part) for part in parts]
    compressed.append(deflater.flush())
    return b"".join(compressed)


def _quality(settings: list[str]) -> float:
    for setting in settings:
        if setting.startswith("q="):
            try:
                return float(setting[2:])
            except ValueError:
                return 0.0
    return 1.0
