"""What a model accepts as one of its inputs, prepared so that a good tensor is recognised in a few steps."""

from __future__ import annotations

import struct

from trireme.config.model_config import TensorConfig
from trireme.core.datatype import ITEM_SIZE
from trireme.core.elements import Buffer
from trireme.core.tensor import CountedTensor, Tensor

_length_at = struct.Struct("<I").unpack_from


class InputCheck:
    """One input of a model. Clients repeat their shapes, so the size that belongs to the last one is remembered."""

    __slots__ = ("datatype", "dims", "has_batch", "is_optional", "item_size", "name", "reshape", "shape", "size")

    def __init__(self, config: TensorConfig, has_batch: bool) -> None:
        self.name = config.name
        self.datatype = config.datatype
        self.item_size = ITEM_SIZE.get(config.datatype, 0)  # 0 for BYTES
        self.dims = config.dims
        self.reshape = config.reshape
        self.has_batch = has_batch
        self.is_optional = config.is_optional
        self.shape: tuple[int, ...] | list[int] | None = None  # the last shape that fitted
        self.size = 0  # what it asks for: bytes, or elements of BYTES

    def matches(self, shape: tuple[int, ...] | list[int]) -> bool:
        """Whether the shape fits the configuration; remembers it if so."""
        given = shape[1:] if self.has_batch else shape
        if len(given) != len(self.dims) or (self.has_batch and not shape):
            return False
        count = 1
        if self.has_batch:
            if shape[0] < 0:
                return False
            count = shape[0] or 1  # no rows at all are refused later, after whatever else is wrong
        for dim, expected in zip(given, self.dims, strict=True):
            if dim < 0 or (dim != expected and expected != -1):
                return False
            count *= dim
        self.size = count * (self.item_size or 1)
        self.shape = shape
        return True

    def has_strings(self, tensor: Tensor) -> bool:
        """Whether the data is as many complete strings as the shape that was compared last asks for."""
        if type(tensor) is CountedTensor:
            return tensor.has_elements(self.size)
        return has_elements(tensor.data, self.size)

    def reshaped(self, shape: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        """The shape the backend sees for a shape that fits."""
        assert self.reshape is not None
        batch, given = (tuple(shape[:1]), shape[1:]) if self.has_batch else ((), shape)
        return batch + fill_wildcards(self.reshape, self.dims, given)


def fill_wildcards(
    target: tuple[int, ...], pattern: tuple[int, ...], values: tuple[int, ...] | list[int]
) -> tuple[int, ...]:
    """`target` with its -1s replaced, in order, by the values that stand where `pattern` has its -1s."""
    variable = iter([value for value, dim in zip(values, pattern, strict=True) if dim == -1])
    return tuple(next(variable, -1) if dim == -1 else dim for dim in target)


def has_elements(data: Buffer, count: int) -> bool:
    """Whether BYTES data is exactly that many complete elements."""
    position, end = 0, len(data)
    try:
        for _ in range(count):
            position += 4 + _length_at(data, position)[0]
    except struct.error:
        return False
    return position == end
