"""DLPack capsules, read and written with ctypes, so that bfloat16 and every numpy release are covered alike."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.core.datatype import BF16, NUMPY_DTYPE
from trireme.core.elements import element_count

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_FRESH, _USED = b"dltensor", b"used_dltensor"
_TYPE_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4

_NOT_SUPPORTED = (
    "Provided tensor is not supported. Tensor must be a DLPack capsule         "
    "or have `__dlpack__` and `__dlpack_device__` attributes"
)
_NOT_CONTIGUOUS = (
    "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
)


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
# A destructor is given a dying capsule, which must not become a Python object again: these take its bare address.
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

_exported: dict[int, tuple[Any, ...]] = {}
"""What capsules point at, by the address of the managed tensor, until its deleter is called."""


def _delete(address: int, exported: dict[int, tuple[Any, ...]] = _exported) -> None:
    exported.pop(address, None)


def _destroy(
    capsule: int, is_valid: Any = _is_valid_at, get_pointer: Any = _get_pointer_at, fresh: bytes = _FRESH
) -> None:
    """Nobody took the capsule: its content goes with it."""
    if is_valid(capsule, fresh):
        _delete(get_pointer(capsule, fresh))


_on_delete = _Deleter(_delete)
_on_destroy = _Destructor(_destroy)
for _callback in (_on_delete, _on_destroy):  # a library may call them while the interpreter shuts down
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def export(datatype: str, array: NDArray[Any]) -> Any:
    """A capsule over the array's memory, which lives until the capsule's taker calls the deleter."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    managed = _ManagedTensor()
    tensor = managed.tensor
    tensor.data = array.ctypes.data
    tensor.device = _Device(_CPU, 0)
    tensor.ndim = array.ndim
    code = _BFLOAT if datatype == BF16 else _TYPE_CODES[array.dtype.kind]
    tensor.dtype = _DataType(code, array.dtype.itemsize * 8, 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _on_delete
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, array)
    return _new_capsule(address, _FRESH, _on_destroy)


def read(source: Any) -> tuple[str, NDArray[Any]]:
    """The wire datatype and an array over the same memory (bfloat16 as 16-bit integers). What lies on a GPU is first
    copied to the CPU, by the library it comes from."""
    if type(source).__name__ == "PyCapsule":
        return _read_capsule(source)
    if not (hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__")):
        raise TritonModelException(_NOT_SUPPORTED)
    device_type = int(source.__dlpack_device__()[0])
    if device_type == _CUDA:
        return read(_on_cpu(source))
    if device_type not in (_CPU, _CUDA_HOST):
        raise TritonModelException(f"DLDevice type {device_type} is not support by Python backend.")
    return _read_capsule(source.__dlpack__())


def _on_cpu(source: Any) -> Any:
    for method in ("cpu", "get"):  # torch's name for it, and CuPy's
        if hasattr(source, method):
            return getattr(source, method)()
    raise TritonModelException("a tensor on a GPU must have a `cpu` method, through which it is copied")


def _unwrapped(capsule: Any) -> Any:
    """A capsule on a GPU as a tensor of the library that can copy it; the model has imported the one that made it."""
    for library in ("torch", "cupy"):
        if library in sys.modules:
            return sys.modules[library].from_dlpack(capsule)
    raise TritonModelException("a DLPack capsule on a GPU cannot be copied; pass the tensor object itself")


class _Loan:
    """Calls the deleter of a foreign capsule when the last array over its memory is gone."""

    __slots__ = ("_managed",)

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def _read_capsule(capsule: Any) -> tuple[str, NDArray[Any]]:
    if not _is_valid(capsule, _FRESH):
        raise TritonModelException("the DLPack capsule was already consumed, or is of another kind than `dltensor`")
    managed = _ManagedTensor.from_address(_get_pointer(capsule, _FRESH))
    tensor = managed.tensor
    if tensor.device.device_type == _CUDA:
        return read(_on_cpu(_unwrapped(capsule)))
    if tensor.device.device_type not in (_CPU, _CUDA_HOST):
        raise TritonModelException(f"DLDevice type {tensor.device.device_type} is not support by Python backend.")
    shape = tuple(tensor.shape[: tensor.ndim])
    datatype, dtype = _types(tensor.dtype)
    if tensor.strides and not _is_c_contiguous(shape, tensor.strides[: tensor.ndim]):
        raise TritonModelException(_NOT_CONTIGUOUS)
    _set_name(capsule, _USED)
    size = element_count(shape) * dtype.itemsize
    memory_type: Any = ctypes.c_uint8 * size
    memory = memory_type.from_address(tensor.data + tensor.byte_offset) if size else memory_type()
    memory.loan = _Loan(managed)
    return datatype, np.ndarray(shape, dtype, memory)


def _types(dtype: Any) -> tuple[str, np.dtype[Any]]:
    if dtype.lanes == 1:
        if (dtype.code, dtype.bits) == (_BFLOAT, 16):
            return BF16, np.dtype("<u2")
        for name, candidate in NUMPY_DTYPE.items():
            if (_TYPE_CODES[candidate.kind], candidate.itemsize * 8) == (dtype.code, dtype.bits):
                return name, candidate
    raise TritonModelException(f"DLPack data type code {dtype.code} with {dtype.bits} bits is not supported.")


def _is_c_contiguous(shape: tuple[int, ...], strides: list[int]) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim != 1 and stride != expected:
            return False
        expected *= dim
    return True
