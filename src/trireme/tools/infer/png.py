"""PNG files without a library: read where they are not interlaced, and written."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_PALETTE = 3
_MOST_PIXELS = 1 << 28


class PngError(ValueError):
    """Why a file cannot be read here."""


def decode_png(content: bytes) -> Pixels:
    """Rows, columns, channels, of 8 bits; raises PngError."""
    if not content.startswith(_SIGNATURE):
        raise PngError("it is no PNG file")
    try:
        return _decode(dict(_chunks(content)))
    except (struct.error, zlib.error, KeyError, IndexError, ValueError) as error:
        raise error if isinstance(error, PngError) else PngError(f"it is a damaged PNG file ({error})") from None


def encode_png(pixels: Pixels) -> bytes:
    """Rows and columns, or these and channels."""
    shaped = pixels.reshape(*pixels.shape[:2], -1)
    height, width, channels = shaped.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = shaped.reshape(height, -1)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks by name, the parts of the picture's data as one."""
    position, data = len(_SIGNATURE), []
    while position + 8 <= len(content):
        size, name = struct.unpack_from(">I4s", content, position)
        chunk = content[position + 8 : position + 8 + size]
        position += 12 + size
        if name == b"IDAT":
            data.append(chunk)
        else:
            yield name, chunk
    yield b"IDAT", b"".join(data)


def _decode(chunks: dict[bytes, bytes]) -> Pixels:
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    if interlace:
        raise PngError("it is an interlaced PNG file")
    if not 0 < width * height <= _MOST_PIXELS:
        raise PngError(f"it is a PNG file of {width} x {height} pixels")
    channels = _CHANNELS[colour_type]
    row_bytes = (width * channels * depth + 7) // 8
    size = height * (row_bytes + 1)
    raw = zlib.decompressobj().decompress(chunks[b"IDAT"], size)
    if len(raw) < size:
        raise PngError("it is a PNG file that is cut short")
    rows = _unfiltered(np.frombuffer(raw, np.uint8).reshape(height, row_bytes + 1), max(1, channels * depth // 8))
    samples = _samples(rows, width * channels, depth, is_index=colour_type == _PALETTE).reshape(height, width, channels)
    if colour_type != _PALETTE:
        return samples
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    colours: Pixels = palette[samples[:, :, 0]]
    return colours


def _unfiltered(filtered: Pixels, step: int) -> Pixels:
    """Each row is told as a difference to the pixel at its left, above it, or both."""
    height, width = filtered.shape[0], filtered.shape[1] - 1
    rows = np.zeros((height + 1, width), np.uint8)
    for number in range(height):
        kind, line, above = int(filtered[number, 0]), filtered[number, 1:], rows[number]
        if kind == 0:
            rows[number + 1] = line
        elif kind == 1:
            padded = np.zeros(-(-width // step) * step, np.uint8)
            padded[:width] = line
            rows[number + 1] = np.cumsum(padded.reshape(-1, step), axis=0, dtype=np.uint8).ravel()[:width]
        elif kind == 2:
            rows[number + 1] = line + above
        elif kind in (3, 4):
            rows[number + 1] = np.frombuffer(_predicted(bytes(line), bytes(above), step, kind == 4), np.uint8)
        else:
            raise PngError(f"it has a row with the unknown filter {kind}")
    return rows[1:]


def _predicted(line: bytes, above: bytes, step: int, is_paeth: bool) -> bytes:
    row = bytearray(line)
    for at in range(len(row)):
        left = row[at - step] if at >= step else 0
        up = above[at]
        guess = _paeth(left, up, above[at - step] if at >= step else 0) if is_paeth else (left + up) // 2
        row[at] = (row[at] + guess) & 255
    return bytes(row)


def _paeth(left: int, up: int, corner: int) -> int:
    estimate = left + up - corner
    by_left, by_up, by_corner = abs(estimate - left), abs(estimate - up), abs(estimate - corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner


def _samples(rows: Pixels, count: int, depth: int, is_index: bool) -> Pixels:
    if depth == 16:
        return rows[:, ::2]
    if depth == 8:
        return rows
    bits = np.unpackbits(rows, axis=1).reshape(len(rows), -1, depth)[:, :count]
    values = bits @ (1 << np.arange(depth - 1, -1, -1))
    return (values if is_index else values * 255 // (2**depth - 1)).astype(np.uint8)
