"""`InferTensorContents`, tensor data as typed protobuf fields, to wire layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    return decode_pieces((contents,), name, datatype, model_name)


def decode_pieces(pieces: Iterable[Any], name: str, datatype: str, model_name: str) -> bytes:
    """The same of contents that are one after the other, each of which is needed only for a moment; of strings and of
    the numbers that are on the wire as in a tensor, a piece may be the data themselves."""
    present: set[str] = set()
    encoded: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, EncodedPiece):
            present.add(piece.field)
            encoded.append(piece.data)
            continue
        for field, field_type, datatypes in _FIELDS:
            values = getattr(piece, field)
            if len(values):
                present.add(field)
                if datatype in datatypes:
                    encoded += _encode_slices(values, field_type, datatype)
    for field, field_type, datatypes in _FIELDS:
        if field in present and datatype not in datatypes:
            raise InvalidArgumentError(
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model_name}' of type "
                f"'{field_type}', expected datatype '{datatype}'"
            )
    return b"".join(encoded)


def _encode_slices(values: Any, field_type: str, datatype: str) -> Iterator[bytes]:
    source, wanted = NUMPY_DTYPE.get(field_type), NUMPY_DTYPE.get(datatype)
    for start in range(0, len(values), _SLICE):
        elements = values[start : start + _SLICE]
        if datatype == BYTES:
            yield encode_bytes(elements)
        else:
            yield np.array(elements, dtype=source).astype(wanted).tobytes()


class EncodedPiece:
    """A piece of contents that needs no decoding."""

    __slots__ = ("data", "field")

    def __init__(self, field: str, data: bytes) -> None:
        self.field = field
        self.data = data


class DecodedContents:
    """Contents that were decoded before anybody asked for them, or the error of it."""

    __slots__ = ("_data", "_error")

    def __init__(self, pieces: Iterable[Any], name: str, datatype: str, model_name: str) -> None:
        self._data = b""
        self._error: ServingError | None = None
        try:
            self._data = decode_pieces(pieces, name, datatype, model_name)
        except ServingError as error:
            self._error = error.with_traceback(None)

    def data(self) -> bytes:
        """The data; raises the ServingError that decoding did."""
        if self._error is not None:
            raise self._error
        return self._data
