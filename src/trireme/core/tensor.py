"""A tensor in wire layout: C order, little endian, BYTES elements each behind a 4-byte length."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BYTES, NUMPY_DTYPE, from_numpy

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct("<I")


class Tensor:
    """Name, wire datatype, shape and data; the data is never changed once the tensor is made."""

    __slots__ = ("data", "datatype", "name", "shape")

    def __init__(self, name: str, datatype: str, shape: tuple[int, ...] | list[int], data: Buffer) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.datatype}, {list(self.shape)}, {len(self.data)} bytes)"

    @classmethod
    def from_numpy(cls, name: str, array: NDArray[np.generic]) -> Tensor:
        """A tensor with the array's content; raises TypeError for a type the protocol does not have."""
        datatype = from_numpy(array.dtype)
        if datatype is None:
            raise TypeError(f"tensor '{name}' has the numpy type {array.dtype}, which no tensor datatype holds")
        if datatype == BYTES:
            return cls(name, datatype, array.shape, encode_bytes(array.ravel()))
        little = np.ascontiguousarray(array, dtype=NUMPY_DTYPE[datatype])
        return cls(name, datatype, array.shape, little.tobytes())

    def to_numpy(self) -> NDArray[np.generic]:
        """The content as an array: read-only over the same memory, or objects of `bytes` for BYTES."""
        if self.datatype == BYTES:
            flat = np.empty(element_count(self.shape), dtype=np.object_)
            flat[:] = decode_bytes(self.data)
            return flat.reshape(self.shape)
        return np.frombuffer(self.data, dtype=NUMPY_DTYPE[self.datatype]).reshape(self.shape)


class CountedTensor(Tensor):
    """A BYTES tensor whose data has been walked through before: many strings take a while, and whoever must not wait
    has them counted elsewhere."""

    __slots__ = ("string_count", "strings_end")

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.name, tensor.datatype, tensor.shape, tensor.data)
        self.string_count, self.strings_end = count_strings(tensor.data)

    def has_elements(self, count: int) -> bool:
        """Whether the data is exactly that many complete elements."""
        return self.string_count == count and self.strings_end == len(self.data)


def count_strings(data: Buffer) -> tuple[int, int]:
    """How many complete BYTES elements there are from the beginning, and the offset behind the last."""
    count = position = 0
    last = len(data) - 4
    while position <= last:
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
