"""Constants of pb_utils and its functions about types and byte tensors."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BF16, from_config
from trireme.core.elements import decode_bytes, encode_bytes

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2


def as_text(what: str, value: object) -> str:
    """A name or message of the model as plain text: model files pass UTF-8 `bytes` as well as `str`. `what` says which
    argument it is."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str or bytes, found {type(value).__name__}")
    return str(value)


class MemoryType(enum.Enum):
    """Where outputs of a BLS request should lie."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class PreferredMemory:
    """Where a BLS request wants its outputs; outputs are given in CPU memory, where everything can read them."""

    __slots__ = ("device_id", "memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError("PreferredMemory: expected TRITONSERVER_MEMORY_CPU or TRITONSERVER_MEMORY_GPU")
        self.memory_type = preferred_memory_type
        self.device_id = preferred_device_id


TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

DATATYPE_NUMBER: dict[str, int] = {
    name: number for number, name in enumerate([from_config(name) for name in TRITON_STRING_TO_NUMPY] + [BF16], start=1)
}
"""The numbers of Triton's DataType, by wire name."""

_NUMPY_OF_NUMBER: dict[int, Any] = {
    1: np.bool_,
    **dict(enumerate(list(TRITON_STRING_TO_NUMPY.values())[1:], start=2)),
}
_NUMBER_OF_NUMPY: dict[Any, int] = {dtype: number for number, dtype in _NUMPY_OF_NUMBER.items()} | {np.bytes_: 13}


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """numpy's type for a config's `TYPE_...`; KeyError where there is none."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """numpy's type for a DataType number; None where there is none."""
    return _NUMPY_OF_NUMBER.get(data_type)


def numpy_to_triton_type(data_type: Any) -> int | None:
    """The DataType number of a numpy type; None where there is none."""
    if isinstance(data_type, np.dtype):
        data_type = data_type.type
    return _NUMBER_OF_NUMPY.get(data_type)


def serialize_byte_tensor(input_tensor: NDArray[Any]) -> bytes | tuple[()] | None:
    """Each element behind its 4-byte length; an empty tuple for no elements, None for arrays of another kind."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    return encode_bytes(input_tensor.ravel().tolist())


def deserialize_bytes_tensor(encoded_tensor: bytes) -> NDArray[np.object_]:
    """The elements, as `bytes`, in an array of one dimension."""
    return np.array(decode_bytes(encoded_tensor), dtype=np.object_)
