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
_FIRST_BLOCK_BYTES: Final = 1 << 12
_LARGEST_BLOCK_BYTES: Final = 1 << 20
_READINGS: Final = 4
"""So many times the length of a file may be read for frames that turn out to be none."""


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
    search = _FrameSearch(source)
    position = len(MAGIC)
    while (frame := search.first_from(position)) is not None:
        if frame.offset > position:
            yield Damage(position, frame.offset - position, is_at_end=False)
        yield frame
        position = frame.end
    end = source.seek(0, 2)
    if end > position:
        yield Damage(position, end - position, is_at_end=True)


def read_frame(source: BinaryIO, offset: int) -> Frame | None:
    """The frame that begins there; None where none does, or not a whole one."""
    head = _head_at(source, offset)
    return None if head is None else _frame_of(source, head)


@dataclass(frozen=True, slots=True)
class _Head:
    """What a frame says of itself; the file is long enough for it."""

    offset: int
    text_bytes: int
    data_bytes: int
    checksum: int

    @property
    def text_end(self) -> int:
        return self.offset + HEAD.size + self.text_bytes

    @property
    def end(self) -> int:
        return self.text_end + self.data_bytes


class _FrameSearch:
    """Finds frames in one file. What only looks like a frame costs a reading of all that it promises: files that are
    full of such things are read a few times, and not once for each of them."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._room_bytes = _READINGS * source.seek(0, 2)  # for what turns out to be none

    def first_from(self, position: int) -> Frame | None:
        """The first whole frame that begins there or later."""
        has_room = self._room_bytes > 0
        if has_room and (frame := self._read(_head_at(self._source, position))) is not None:
            return frame
        marks = _marks(self._source, position + has_room)
        mark = next(marks, None)
        while mark is not None:
            following = next(marks, None)
            frame = self._read(self._likely_head(mark, following))
            if frame is not None:
                return frame
            mark = following
        return None

    def _likely_head(self, mark: int, following: int | None) -> _Head | None:
        """None, too, where another mark lies in the text, which is UTF-8 and has none, or in the data, where there is
        no room to read it in vain."""
        if following is not None and following < mark + HEAD.size:
            return None
        head = _head_at(self._source, mark)
        if head is None or following is None:
            return head
        return head if following >= (head.text_end if self._room_bytes > 0 else head.end) else None

    def _read(self, head: _Head | None) -> Frame | None:
        if head is None:
            return None
        frame = _frame_of(self._source, head)
        if frame is None:
            self._room_bytes -= head.end - head.offset
        return frame


def _head_at(source: BinaryIO, offset: int) -> _Head | None:
    source.seek(offset)
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    mark, text_bytes, data_bytes, checksum = HEAD.unpack(head)
    if mark != MARK or text_bytes > MAX_TEXT_BYTES or data_bytes > MAX_DATA_BYTES:
        return None
    found = _Head(offset, text_bytes, data_bytes, checksum)
    return found if source.seek(0, 2) >= found.end else None


def _frame_of(source: BinaryIO, head: _Head) -> Frame | None:
    source.seek(head.offset + HEAD.size)
    text = source.read(head.text_bytes)
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(header, dict):
        return None
    data = source.read(head.data_bytes)
    is_whole = zlib.crc32(data, zlib.crc32(text)) == head.checksum
    return Frame(head.offset, header, data, head.end) if is_whole else None


def _marks(source: BinaryIO, position: int) -> Iterator[int]:
    """Where marks lie, from there on; blocks grow, so that one nearby costs little."""
    block_bytes = _FIRST_BLOCK_BYTES
    while True:
        source.seek(position)
        block = source.read(block_bytes)
        if len(block) < len(MARK):
            return
        found = block.find(MARK)
        while found >= 0:
            yield position + found
            found = block.find(MARK, found + len(MARK))
        position += len(block) - len(MARK) + 1
        block_bytes = min(2 * block_bytes, _LARGEST_BLOCK_BYTES)
