"""Frames of a recording: a mark, two lengths and a checksum before a JSON text and the bytes that it describes.

A file is `MAGIC` and then frames. Whatever is cut off or damaged, the frames before it are whole, and those behind it
are found by their mark.

    4 bytes  the mark, `MARK`
    4 bytes  length of the JSON text, little endian like all numbers here
    8 bytes  length of the data
    4 bytes  CRC-32 of text and data
    text, data
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import orjson

MAGIC: Final = b"TRIREME-RECORDING 1\n"
MARK: Final = b"\xf5REC"
HEAD: Final = struct.Struct("<4sIQI")
MAX_TEXT_BYTES: Final = 16 << 20
MAX_DATA_BYTES: Final = 1 << 32
_SEARCH_BYTES: Final = 1 << 20


class FrameError(ValueError):
    """What is to be written cannot be read again."""


class NoRecordingError(ValueError):
    """The bytes do not begin as a recording does."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, and where it begins in its file."""

    offset: int
    header: dict[str, Any]
    data: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in which no whole frame was found; at the end of a file they are a frame that was cut off."""

    offset: int
    size_bytes: int
    is_at_end: bool


def encode_frame(header: dict[str, Any], data: bytes = b"") -> bytes:
    """The frame's bytes; raises FrameError where they would be too many for a reader."""
    try:
        text = orjson.dumps(header)
    except TypeError:  # bytes that are no UTF-8 came in a header or a name
        text = orjson.dumps(cleaned(header))
    if len(text) > MAX_TEXT_BYTES or len(data) > MAX_DATA_BYTES:
        raise FrameError(f"its description has {len(text)} bytes, more than one in a recording may have")
    return HEAD.pack(MARK, len(text), len(data), zlib.crc32(data, zlib.crc32(text))) + text + data


def cleaned(value: Any) -> Any:
    """The same with question marks for what is no text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {cleaned(name): cleaned(inner) for name, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def read_frames(source: BinaryIO) -> Iterator[Frame | Damage]:
    """What a file holds, in its order, one frame in memory at a time; raises NoRecordingError where it begins
    otherwise."""
    if source.read(len(MAGIC)) != MAGIC:
        raise NoRecordingError("it does not begin as a recording does")
    position = len(MAGIC)
    while True:
        frame = read_frame(source, position)
        if frame is not None:
            yield frame
            position = frame.end
            continue
        following = _next_frame(source, position)
        if following is None:
            end = source.seek(0, 2)
            if end > position:
                yield Damage(position, end - position, is_at_end=True)
            return
        yield Damage(position, following - position, is_at_end=False)
        position = following


def read_frame(source: BinaryIO, offset: int) -> Frame | None:
    """The frame that begins there; None where none does, or not a whole one."""
    source.seek(offset)
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    mark, text_size, data_size, checksum = HEAD.unpack(head)
    if mark != MARK or text_size > MAX_TEXT_BYTES or data_size > MAX_DATA_BYTES:
        return None
    start = offset + HEAD.size
    if source.seek(0, 2) < start + text_size + data_size:
        return None
    source.seek(start)
    text, data = source.read(text_size), source.read(data_size)
    if zlib.crc32(data, zlib.crc32(text)) != checksum:
        return None
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return Frame(offset, header, data, start + text_size + data_size) if isinstance(header, dict) else None


def _next_frame(source: BinaryIO, offset: int) -> int | None:
    """Where the first whole frame behind this place begins."""
    position = offset + 1
    while True:
        source.seek(position)
        block = source.read(_SEARCH_BYTES)
        found = block.find(MARK)
        if found < 0:
            if len(block) < _SEARCH_BYTES:
                return None
            position += len(block) - len(MARK) + 1
            continue
        if read_frame(source, position + found) is not None:
            return position + found
        position += found + 1
