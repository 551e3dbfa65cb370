"""Content codings of HTTP bodies: the choice by Accept-Encoding, bounded inflation, deflation."""

from __future__ import annotations

import zlib
from typing import Final

from trireme.core.elements import Buffer
from trireme.core.errors import InvalidArgumentError

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


def decompress(body: Buffer, max_size_bytes: int) -> bytes:
    """The body behind a gzip or zlib wrapper; raises InvalidArgumentError where it is none or grows too large."""
    inflated = decompress_within(body, max_size_bytes)
    if inflated is None:
        raise InvalidArgumentError(
            f"Decompressed data size exceeds the maximum allowed value of {max_size_bytes} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
    return inflated


def decompress_within(body: Buffer, max_size_bytes: int) -> bytes | None:
    """The same, but None where it grows too large."""
    if not body:
        raise InvalidArgumentError("nothing to be decompressed")
    inflater = zlib.decompressobj(_ANY_WINDOW)
    try:
        inflated = inflater.decompress(body, max_size_bytes + 1)
    except zlib.error as error:
        raise InvalidArgumentError(f"failed to decompress the request body: {error}") from None
    if len(inflated) > max_size_bytes:
        return None
    if not inflater.eof:
        raise InvalidArgumentError("failed to decompress the request body: it ends early")
    return inflated


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
