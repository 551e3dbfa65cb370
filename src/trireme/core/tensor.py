"""A tensor in wire layout: C order, little endian, BYTES elements each behind a 4-byte length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BYTES, NUMPY_DTYPE, from_numpy
from trireme.core.elements import Buffer, decode_bytes, element_count, encode_bytes


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


class HandedTensor(Tensor):
    """A tensor over memory that nobody but its receiver looks at: the memory itself may be passed on, instead of its
    content. `origin` says where the memory lies, to the backend that made the tensor."""

    __slots__ = ("origin",)

    def __init__(
        self, name: str, datatype: str, shape: tuple[int, ...] | list[int], data: Buffer, origin: object
    ) -> None:
        super().__init__(name, datatype, shape, data)
        self.origin = origin


class CountedTensor(Tensor):
    """A BYTES tensor whose data has been walked through before: many strings take a while, and whoever must not wait
    has them counted elsewhere."""

    __slots__ = ("string_count", "strings_end")

    def __init__(self, tensor: Tensor, string_count: int, strings_end: int) -> None:
        super().__init__(tensor.name, tensor.datatype, tensor.shape, tensor.data)
        self.string_count = string_count
        self.strings_end = strings_end

    def has_elements(self, count: int) -> bool:
        """Whether the data is exactly that many complete elements."""
        return self.string_count == count and self.strings_end == len(self.data)
