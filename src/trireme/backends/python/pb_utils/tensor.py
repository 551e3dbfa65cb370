"""`pb_utils.Tensor`, and its two ways across: out of a message and into one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.channel.messages import INLINE_LIMIT_BYTES
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.types import DATATYPE_NUMBER, as_text
from trireme.core.datatype import BF16, BYTES, NUMPY_DTYPE, from_numpy
from trireme.core.elements import decode_bytes, element_count, encode_bytes

_NO_NAME = "Tensor name cannot be an empty string."
_BITS_16 = np.dtype("<u2")
_STORED_DTYPE = NUMPY_DTYPE | {BF16: _BITS_16}
_new = object.__new__


class Tensor:
    """A name and an array. A tensor out of a message makes its array when it is first asked for."""

    __slots__ = ("_array", "_data", "_datatype", "_name", "_shape")

    _name: str
    _datatype: str
    _shape: tuple[int, ...] | list[int]
    _data: Any  # wire bytes, until the array is made
    _array: NDArray[Any] | None

    def __init__(self, name: str | bytes, numpy_array: NDArray[Any], /) -> None:
        if type(name) is not str:
            name = as_text("Tensor: name", name)
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"Tensor: expected a numpy.ndarray, found {type(numpy_array).__name__}")
        if not name:
            raise TritonModelException(_NO_NAME)
        datatype = from_numpy(numpy_array.dtype)
        if datatype is None:
            raise TritonModelException("NumPy dtype is not supported.")
        self._name = name
        self._datatype = datatype
        self._shape = numpy_array.shape
        self._data = None
        if datatype != BYTES and not (numpy_array.flags.c_contiguous and numpy_array.dtype.isnative):
            numpy_array = np.ascontiguousarray(numpy_array, dtype=NUMPY_DTYPE[datatype]).reshape(self._shape)
        self._array = numpy_array

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._shape)

    def triton_dtype(self) -> int:
        """The number of its DataType."""
        return DATATYPE_NUMBER[self._datatype]

    def is_cpu(self) -> bool:
        """Always true: tensors that come from a GPU are copied when they are wrapped."""
        return True

    def as_numpy(self) -> NDArray[Any]:
        """The same array at every call; writable."""
        array = self._array
        if array is None:
            array = self._array = _to_array(self._datatype, self._shape, self._data)
            self._data = None
        if self._datatype == BF16:
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        return array

    def to_dlpack(self) -> Any:
        """A capsule over the same memory, for `from_dlpack` of another library."""
        return self.__dlpack__()

    @staticmethod
    def from_dlpack(name: str | bytes, tensor: Any, /) -> Tensor:
        """A tensor over the memory of a capsule, or of anything that speaks DLPack."""
        name = as_text("Tensor.from_dlpack: name", name)
        if not name:
            raise TritonModelException(_NO_NAME)
        from trireme.backends.python.pb_utils import dlpack

        datatype, array = dlpack.read(tensor)
        return _stored(name, datatype, array.shape, array)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if self._datatype == BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        from trireme.backends.python.pb_utils import dlpack

        if self._array is None:
            self._array = _to_array(self._datatype, self._shape, self._data)
            self._data = None
        return dlpack.export(self._datatype, self._array.copy() if copy else self._array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


def decode_tensor(message: tuple[Any, ...], attachments: Attachments | None) -> Tensor:
    """A tensor of a message; data in shared memory is taken over at once, so that it is given back in any case."""
    name, datatype, shape, data = message
    tensor: Tensor = _new(Tensor)
    tensor._name = name
    tensor._datatype = datatype
    tensor._shape = shape
    if type(data) is tuple:
        assert attachments is not None
        if datatype == BYTES:
            tensor._data = attachments.view(data)
            tensor._array = None
        else:
            tensor._data = None
            tensor._array = attachments.array(data, _STORED_DTYPE[datatype], shape)
    else:
        tensor._data = data
        tensor._array = None
    return tensor


def encode_tensor(tensor: Tensor, arena: Arena | None) -> tuple[Any, ...]:
    """The tensor for a message: small data in it, large data in the arena where there is one."""
    array = tensor._array
    data: Any
    if array is None or tensor._datatype == BYTES:
        data = tensor._data if array is None else encode_bytes(array.ravel().tolist())
        if arena is not None and len(data) > INLINE_LIMIT_BYTES:
            data = arena.place(data)
    elif arena is not None and array.nbytes > INLINE_LIMIT_BYTES:
        data, target = arena.reserve(array.nbytes)
        np.ndarray(array.shape, array.dtype, target)[...] = array
    else:
        data = array  # marshal copies any contiguous buffer
    return (tensor._name, tensor._datatype, tensor._shape, data)


def _stored(name: str, datatype: str, shape: tuple[int, ...], array: NDArray[Any]) -> Tensor:
    tensor: Tensor = _new(Tensor)
    tensor._name = name
    tensor._datatype = datatype
    tensor._shape = shape
    tensor._data = None
    tensor._array = array
    return tensor


def _to_array(datatype: str, shape: tuple[int, ...] | list[int], data: Any) -> NDArray[Any]:
    if datatype == BYTES:
        elements = np.empty(element_count(shape), dtype=np.object_)
        elements[:] = decode_bytes(data)
        return elements.reshape(shape)
    return np.ndarray(shape, _STORED_DTYPE[datatype], bytearray(data))  # a copy, so that models may write into it
