"""`InferTensorContents`, tensor data as typed protobuf fields, to wire layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import encode_bytes
from trireme.core.errors import InvalidArgumentError, ServingError

_SLICE = 32 << 10
"""Elements that are converted at once: more would keep other threads from running for long."""

_FIELDS = (
    ("bool_contents", "BOOL", ("BOOL",)),
    ("int_contents", "INT32", ("INT8", "INT16", "INT32")),
    ("int64_contents", "INT64", ("INT64",)),
    ("uint_contents", "UINT32", ("UINT8", "UINT16", "UINT32")),
    ("uint64_contents", "UINT64", ("UINT64",)),
    ("fp32_contents", "FP32", ("FP32",)),
    ("fp64_contents", "FP64", ("FP64",)),
    ("bytes_contents", BYTES, (BYTES,)),
)
"""Field, the type an error names it by, and the datatypes it may hold."""


def decode_contents(contents: Any, name: str, datatype: str, model_name: str) -> bytes:
    """The data of an input; empty where no field has any. Raises ServingError for a field of another type."""
    present = [field for field in _FIELDS if len(getattr(contents, field[0]))]
    where = f"for input tensor '{name}' for model '{model_name}'"
    for _, field_type, datatypes in present:
        if datatype not in datatypes:
            raise InvalidArgumentError(
                f"unexpected explicit tensor data {where} of type '{field_type}', expected datatype '{datatype}'"
            )
    if not present:
        return b""
    field, field_type, _ = present[0]  # no datatype fits two fields
    values = getattr(contents, field)
    slices = [values[start : start + _SLICE] for start in range(0, len(values), _SLICE)]
    if datatype == BYTES:
        return b"".join([encode_bytes(elements) for elements in slices])
    source, wanted = NUMPY_DTYPE[field_type], NUMPY_DTYPE[datatype]
    return b"".join([np.array(elements, dtype=source).astype(wanted).tobytes() for elements in slices])


class DecodedContents:
    """Contents that were decoded before anybody asked for them, or the error of it."""

    __slots__ = ("_data", "_error")

    def __init__(self, contents: Any, name: str, datatype: str, model_name: str) -> None:
        self._data = b""
        self._error: ServingError | None = None
        try:
            self._data = decode_contents(contents, name, datatype, model_name)
        except ServingError as error:
            self._error = error.with_traceback(None)

    def data(self) -> bytes:
        """The data; raises the ServingError that decoding did."""
        if self._error is not None:
            raise self._error
        return self._data
