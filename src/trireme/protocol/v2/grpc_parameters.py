"""The parameters that a gRPC request, its inputs and its outputs may carry, and what is wrong with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.core.datatype import Parameter
from trireme.core.errors import InvalidArgumentError, UnsupportedError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest, RegionPlace

EMPTY_FINAL = "triton_enable_empty_final_response"
MAX_STRING_CORRELATION_ID = 128
_UINT64 = 2**64 - 1
_REGION, _OFFSET, _BYTE_SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


class RequestParameters:
    """The request's own parameters: the ones the server acts on, and the rest, which the model gets."""

    __slots__ = ("_correlation_id", "_custom", "_flags", "_priority", "_timeout_us", "wants_empty_final")

    def __init__(self) -> None:
        self.wants_empty_final = False
        self._custom: dict[str, Parameter] = {}
        self._correlation_id: int | str = 0
        self._flags = 0
        self._priority = 0
        self._timeout_us = 0

    @classmethod
    def decode(cls, entries: Mapping[str, Any]) -> RequestParameters:
        """Reads `map<string, InferParameter>`; raises ServingError for a type that does not fit its key."""
        parameters = cls()
        for key, value in entries.items():
            parameters._take(key, value, value.WhichOneof("parameter_choice"))
        return parameters

    def apply(self, request: InferenceRequest) -> None:
        """Sets the parameters on a request."""
        if self._custom:
            request.parameters = dict(self._custom)
        request.correlation_id = self._correlation_id
        request.flags = self._flags
        request.priority = self._priority
        request.timeout_us = self._timeout_us

    def _take(self, key: str, value: Any, kind: str | None) -> None:
        if key == "sequence_id":
            self._correlation_id = _correlation_id(value, kind)
        elif key == "sequence_start":
            self._flags |= SEQUENCE_START if _boolean(key, value, kind) else 0
        elif key == "sequence_end":
            self._flags |= SEQUENCE_END if _boolean(key, value, kind) else 0
        elif key == "priority":
            self._priority = _priority(value, kind)
        elif key == "timeout":
            if kind != "int64_param":
                raise _wrong_type(key, "int64_param")
            self._timeout_us = value.int64_param & _UINT64
        elif key == EMPTY_FINAL:
            self.wants_empty_final = _boolean(key, value, kind)
        elif key.startswith("triton_"):
            raise InvalidArgumentError(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
                f"starting with 'triton_' are allowed: {EMPTY_FINAL}"
            )
        elif kind in ("bool_param", "int64_param", "string_param", "double_param"):
            self._custom[key] = getattr(value, kind)
        else:
            raise _wrong_type(key, "int64_param, bool_param, or string_param")


def classification_count(entries: Mapping[str, Any]) -> int | None:
    """How many classes an output's parameters ask for; None where they do not ask."""
    if "classification" not in entries:
        return None
    value = entries["classification"]
    if value.WhichOneof("parameter_choice") != "int64_param":
        raise InvalidArgumentError("invalid value type for 'classification' parameter, expected int64_param")
    count: int = value.int64_param
    if count <= 0:
        raise InvalidArgumentError("invalid value for 'classification' parameter, expected >= 0")
    return count


def region_place(name: str, entries: Mapping[str, Any]) -> RegionPlace | None:
    """Where in shared memory the tensor is, if it is; raises ServingError where the parameters do not fit together."""
    kinds = {
        key: entries[key].WhichOneof("parameter_choice") for key in (_REGION, _OFFSET, _BYTE_SIZE) if key in entries
    }
    for key, kind in kinds.items():
        expected = "string_param" if key == _REGION else "int64_param"
        if kind != expected:
            raise InvalidArgumentError(
                f"invalid value type for '{key}' parameter for tensor '{name}', expected {expected}."
            )
    if _REGION not in kinds:
        for key in (_BYTE_SIZE, _OFFSET):
            if key in kinds:
                raise InvalidArgumentError(
                    f"'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{name}'"
                )
        return None
    if _BYTE_SIZE not in kinds:
        raise InvalidArgumentError(
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
            f"for tensor '{name}'"
        )
    offset = entries[_OFFSET].int64_param & _UINT64 if _OFFSET in kinds else 0  # what is negative fits no region
    return RegionPlace(entries[_REGION].string_param, offset, entries[_BYTE_SIZE].int64_param & _UINT64)


def _wrong_type(key: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"invalid value type for '{key}' parameter, expected {expected}.")


def _boolean(key: str, value: Any, kind: str | None) -> bool:
    if kind != "bool_param":
        raise _wrong_type(key, "bool_param")
    return bool(value.bool_param)


def _correlation_id(value: Any, kind: str | None) -> int | str:
    if kind == "int64_param":
        return int(value.int64_param) & _UINT64
    if kind != "string_param":
        raise _wrong_type("sequence_id", "int64_param or string_param")
    text: str = value.string_param
    if len(text.encode()) > MAX_STRING_CORRELATION_ID:
        raise UnsupportedError(f"string correlation ID cannot be longer than {MAX_STRING_CORRELATION_ID} characters")
    return text


def _priority(value: Any, kind: str | None) -> int:
    if kind == "uint64_param":
        return int(value.uint64_param)
    if kind != "int64_param":
        raise _wrong_type("priority", "int64_param or uint64_param")
    if value.int64_param < 0:
        raise InvalidArgumentError("invalid value for 'priority', expected value >= 0.")
    return int(value.int64_param)
