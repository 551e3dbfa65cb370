"""Elements in wire layout, as the server and its workers both see them: BYTES elements each behind a 4-byte length."""

from __future__ import annotations

import struct
from collections.abc import Iterable

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct("<I")


def count_strings(data: Buffer, max_count: int | None = None) -> tuple[int, int]:
    """How many complete BYTES elements there are from the beginning, no more than `max_count`, and the offset behind
    the last."""
    count = position = 0
    last = len(data) - 4
    while position <= last and count != max_count:
        following = position + 4 + _LENGTH.unpack_from(data, position)[0]
        if following > last + 4:
            break
        position = following
        count += 1
    return count, position


def element_count(shape: Iterable[int]) -> int:
    """The number of elements of a shape; 1 for a scalar's empty shape."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def encode_bytes(elements: Iterable[object]) -> bytes:
    """BYTES elements in wire layout; str is written as UTF-8, anything else that is not bytes as its str()."""
    parts = []
    for element in elements:
        if isinstance(element, (bytes, bytearray)):
            raw = bytes(element)
        else:
            raw = (element if isinstance(element, str) else str(element)).encode("utf-8", "surrogateescape")
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def decode_bytes(data: Buffer) -> list[bytes]:
    """The elements of BYTES in wire layout; raises ValueError where a length or an element is cut short."""
    elements = []
    position, end = 0, len(data)
    while position < end:
        if position + 4 > end:
            raise ValueError(f"incomplete string length indicator: {end - position} of 4 bytes")
        (size,) = _LENGTH.unpack_from(data, position)
        position += 4
        if position + size > end:
            raise ValueError(f"incomplete string element: {end - position} of {size} bytes")
        elements.append(bytes(data[position : position + size]))
        position += size
    return elements
