"""Tensors of a request, made of texts, numbers and token ids by what the configuration says of the input."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Protocol

from trireme.core.datatype import BYTES
from trireme.core.elements import encode_bytes
from trireme.core.errors import InvalidArgumentError
from trireme.core.tensor import Tensor
from trireme.protocol.json_codec.writer import encode_value
from trireme.protocol.openai.errors import FieldError

_CODES: Final = {
    "BOOL": "?",
    "INT8": "b",
    "UINT8": "B",
    "INT16": "h",
    "UINT16": "H",
    "INT32": "i",
    "UINT32": "I",
    "INT64": "q",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}


_MOST_SHOWN: Final = 80
"""Characters of a value that the client has chosen."""


class InputForm(Protocol):
    """An input as the configuration declares it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def datatype(self) -> str:
        """Its datatype on the wire."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Its dims, without the batch."""


def input_tensor(form: InputForm, values: Sequence[Any], has_batch: bool, field: str | None = None) -> Tensor:
    """The values as one row of the input; raises FieldError, of this field, where they are not of its datatype."""
    if form.datatype == BYTES:
        data = encode_bytes(values)
    else:
        try:
            data = struct.pack(f"<{len(values)}{_CODES[form.datatype]}", *values)
        except (struct.error, KeyError):
            raise _unfitting(form, values, field) from None
    return Tensor(form.name, form.datatype, _shape(form.dims, len(values), has_batch), data)


def _unfitting(form: InputForm, values: Sequence[Any], field: str | None) -> FieldError:
    if field is None:
        return FieldError(None, f"the model's input '{form.name}' is {form.datatype}, and cannot hold this")
    told = str(values[0] if len(values) == 1 else list(values))[:_MOST_SHOWN]
    message = f"'{field}' is {told}, which the model's input '{form.name}' of the type {form.datatype} cannot hold."
    return FieldError(field, message, "invalid_value")


def json_text(name: str, value: Any) -> bytes:
    """The value of the field as JSON; raises FieldError where it cannot be written."""
    try:
        return encode_value(name, value)
    except InvalidArgumentError as error:
        raise FieldError(name, error.message, "invalid_value") from None


def _shape(dims: tuple[int, ...], count: int, has_batch: bool) -> tuple[int, ...]:
    """The last variable dimension takes the count, the others are 1."""
    shape = [1 if dim < 0 else dim for dim in dims]
    for position in range(len(dims) - 1, -1, -1):
        if dims[position] < 0:
            shape[position] = count
            break
    return (1, *shape) if has_batch else tuple(shape)
