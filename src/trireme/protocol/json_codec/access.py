"""Typed reads of parsed JSON that fail with Triton's sentences."""

from __future__ import annotations

from typing import Any, Final

from trireme.core.close_names import closest
from trireme.core.errors import InternalError, InvalidArgumentError
from trireme.protocol.json_codec.reader import MAX_NAME_CHARS

_MAX_UINT: Final = 2**64 - 1
_ABSENT: Final = object()
_MEMBERS = frozenset(("id", "inputs", "outputs", "parameters", "name", "shape", "datatype", "data"))
"""Of requests: what stands under these names is not in another's place."""


def members_of(value: Any) -> dict[str, Any]:
    """The value as an object whose members are asked for."""
    if not isinstance(value, dict):
        raise InternalError("attempt to get members for non-object")
    return value


def string_of(value: Any) -> str:
    """The value as a string."""
    if type(value) is not str:
        raise InternalError("attempt to access JSON non-string as string")
    return value


def name_of(value: Any) -> str:
    """The value as a string that names something, and is looked up and told in errors."""
    name = string_of(value)
    if len(name) > MAX_NAME_CHARS:
        raise name_too_long(len(name))
    return name


def name_too_long(size: int) -> InvalidArgumentError:
    """The refusal of a name that nothing can have."""
    return InvalidArgumentError(
        f"a name, id or datatype of the request has {size} characters; the limit is {MAX_NAME_CHARS}"
    )


def bool_of(value: Any) -> bool:
    """The value as a boolean."""
    if type(value) is not bool:
        raise InternalError("attempt to access JSON non-boolean as boolean")
    return value


def uint_of(value: Any) -> int:
    """The value as an unsigned integer of 64 bits."""
    if type(value) is not int or not 0 <= value <= _MAX_UINT:
        raise InternalError("attempt to access JSON non-unsigned-integer as unsigned-integer")
    return value


def list_of(value: Any) -> list[Any]:
    """The value as an array."""
    if type(value) is not list:
        raise InternalError("attempt to access JSON non-array as array")
    return value


def object_of(value: Any) -> dict[str, Any]:
    """The value as an object."""
    if not isinstance(value, dict):
        raise InternalError("attempt to access JSON non-object as object")
    return value


def member_of(value: Any, name: str) -> Any:
    """A member that must be there."""
    found = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
    if found is _ABSENT:
        raise InternalError(f"attempt to access non-existing object member '{name}'{mistyped(name, value)}")
    return found


def mistyped(name: str, value: Any) -> str:
    """What stands there in the place of the member, where a name is close; nothing else."""
    close = mistyped_name(name, value) if isinstance(value, dict) else None
    return f"; '{close}' is there instead" if close is not None else ""


def mistyped_name(name: str, value: dict[str, Any]) -> str | None:
    """The name of that member."""
    return closest(name, (key for key in value if key not in _MEMBERS), 0.65)


def in_field(field: str, error: InternalError) -> InternalError:
    """The error as it is told of one field of a document."""
    return InternalError(f"Unable to parse '{field}': {error.message}")
