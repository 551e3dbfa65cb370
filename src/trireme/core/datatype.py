"""Tensor element types by their wire names (`FP32`, `BYTES`), their sizes and their numpy and config spellings."""

from __future__ import annotations

from typing import Final

import numpy as np

BYTES: Final = "BYTES"
BF16: Final = "BF16"

Parameter = bool | int | float | str
"""What a parameter of a request or a response may be."""

ITEM_SIZE: Final[dict[str, int]] = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BF16": 2,
}
"""Bytes per element of every fixed-size type; BYTES is absent because its elements carry their own length."""

NUMPY_DTYPE: Final[dict[str, np.dtype[np.generic]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""numpy's type for every type numpy has; BF16 and BYTES are absent."""

WIRE_NAMES: Final = frozenset(ITEM_SIZE) | {BYTES}
"""Every datatype a request may name."""

_FROM_NUMPY: Final = {dtype: name for name, dtype in NUMPY_DTYPE.items()}


def from_numpy(dtype: np.dtype[np.generic]) -> str | None:
    """The wire name of a numpy type: BYTES for objects and strings, None where there is no such type."""
    name = _FROM_NUMPY.get(dtype)
    if name is not None:
        return name
    if dtype.kind in "OSU":
        return BYTES
    return _FROM_NUMPY.get(dtype.newbyteorder("<"))


def from_config(name: str) -> str:
    """`TYPE_FP32` to `FP32`; `TYPE_STRING` to `BYTES`."""
    return BYTES if name == "TYPE_STRING" else name.removeprefix("TYPE_")


_OTHER_NAMES: Final = {
    "STRING": BYTES,
    "STR": BYTES,
    "TEXT": BYTES,
    "OBJECT": BYTES,
    "BOOLEAN": "BOOL",
    "INT": "INT32",
    "LONG": "INT64",
    "HALF": "FP16",
    "FLOAT": "FP32",
    "DOUBLE": "FP64",
    "BFLOAT16": BF16,
    **{f"FLOAT{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
"""What config.pbtxt, numpy and other languages call them."""


def meant_datatype(name: str) -> str | None:
    """The wire name of a type that is written otherwise: `FP32` for `float32`, `TYPE_FP32` or `fp32`; None for a name
    that nobody uses, or that is a wire name."""
    upper = name.upper().removeprefix("TYPE_")
    found = upper if upper in WIRE_NAMES else _OTHER_NAMES.get(upper)
    return None if found == name else found


def to_config(name: str) -> str:
    """`FP32` to `TYPE_FP32`; `BYTES` to `TYPE_STRING`."""
    return "TYPE_STRING" if name == BYTES else f"TYPE_{name}"
