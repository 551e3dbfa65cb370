"""Members of a frame's JSON text, of the kind that they should be: a file may have come from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trireme.core.datatype import Parameter

_LARGEST: Final = 2**64 - 1


class MemberError(ValueError):
    """A member is missing, or is something else than it should be."""


def text_in(entry: Mapping[str, Any], name: str, usual: str | None = None) -> str:
    """Raises MemberError, as all of these do; what is not there is what is usual, and an error for None."""
    value = entry.get(name, usual)
    if not isinstance(value, str):
        raise MemberError(f"'{name}' is no text")
    return value


def count_in(entry: Mapping[str, Any], name: str, usual: int | None = None) -> int:
    """A whole number from 0 to what 64 bits hold."""
    value = entry.get(name, usual)
    if not _is_whole(value) or not 0 <= value <= _LARGEST:
        raise MemberError(f"'{name}' is no whole number from 0 on")
    return int(value)


def flag_in(entry: Mapping[str, Any], name: str, usual: bool = False) -> bool:
    """True or false."""
    value = entry.get(name, usual)
    if not isinstance(value, bool):
        raise MemberError(f"'{name}' is neither true nor false")
    return value


def object_in(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object; an empty one where there is none."""
    value = entry.get(name, {})
    if not isinstance(value, dict):
        raise MemberError(f"'{name}' is no object")
    return value


def list_in(entry: Mapping[str, Any], name: str, usual: list[Any] | None = None) -> list[Any]:
    """A list of anything."""
    value = entry.get(name, usual)
    if not isinstance(value, list):
        raise MemberError(f"'{name}' is no list")
    return value


def objects_in(entry: Mapping[str, Any], name: str, usual: list[Any] | None = None) -> list[dict[str, Any]]:
    """A list of objects."""
    values = list_in(entry, name, usual)
    if not all(isinstance(value, dict) for value in values):
        raise MemberError(f"'{name}' is no list of objects")
    return values


def texts_in(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts; an empty one where there is none."""
    values = list_in(entry, name, [])
    if not all(isinstance(value, str) for value in values):
        raise MemberError(f"'{name}' is no list of texts")
    return tuple(values)


def shape_in(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a tensor."""
    values = list_in(entry, "shape")
    if not all(_is_whole(value) and value >= 0 for value in values):
        raise MemberError("'shape' is no list of whole numbers from 0 on")
    return tuple(values)


def parameters_in(entry: Mapping[str, Any]) -> dict[str, Parameter]:
    """A number that JSON does not have, such as an infinity, is written as null and left out."""
    found = {name: value for name, value in object_in(entry, "parameters").items() if value is not None}
    if not all(isinstance(value, (bool, int, float, str)) for value in found.values()):
        raise MemberError("'parameters' has something else than texts, numbers and booleans")
    return found


def correlation_id_in(entry: Mapping[str, Any]) -> int | str:
    """Of a sequence; 0 where there is none."""
    value = entry.get("correlation_id", 0)
    return value if isinstance(value, str) else count_in(entry, "correlation_id", 0)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
