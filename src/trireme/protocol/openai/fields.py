"""Typed reads of a request's fields; what is wrong is told with the field's name."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any, Final

from trireme.core.close_names import NEAR, closest
from trireme.core.errors import InternalError, InvalidArgumentError
from trireme.protocol.json_codec.reader import MAX_NAME_CHARS
from trireme.protocol.json_codec.text import parse
from trireme.protocol.openai.errors import FieldError, TooLargeError

MAX_INTEGER: Final = 2**63 - 1


class Fields:
    """The members of a JSON object. A member that is null counts as absent."""

    __slots__ = ("_members",)

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    @property
    def names(self) -> Set[str]:
        """Of all members."""
        return self._members.keys()

    def has(self, name: str) -> bool:
        """Whether the member is there, and not null."""
        return self._members.get(name) is not None

    def value(self, name: str) -> Any:
        """The member as it is; None where it is absent."""
        return self._members.get(name)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self._members.get(name)
        if value is not None and type(value) is not str:
            raise wrong_type(name, "a string", value)
        return value

    def required_name(self, name: str) -> str:
        """The name of something, which has to be there, and not empty."""
        value = self.text(name)
        if not value:
            raise self.missing(name)
        if len(value) > MAX_NAME_CHARS:
            raise FieldError(name, f"'{name}' has {len(value)} characters; at most {MAX_NAME_CHARS} are allowed.")
        return value

    def missing(self, name: str) -> FieldError:
        """The error for a field that has to be there, with one that is there and looks like it."""
        close = closest(name, self._members, NEAR)
        instead = f" There is '{close}' instead." if close not in (None, name) else ""
        return FieldError(name, f"'{name}' is required.{instead}", "missing_required_parameter")

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self._members.get(name)
        if value is not None and type(value) is not bool:
            raise wrong_type(name, "a boolean", value)
        return value

    def integer(self, name: str, low: int = 0, high: int = MAX_INTEGER) -> int | None:
        """A whole number within bounds."""
        value = self._members.get(name)
        if value is None:
            return None
        if type(value) is not int:
            if type(value) is float and value.is_integer() and not low < value < high:
                raise _out_of_bounds(name, value, low, high)  # as an integer of more than 64 bits is read
            raise wrong_type(name, "an integer", value)
        if not low <= value <= high:
            raise _out_of_bounds(name, value, low, high)
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number within bounds."""
        value = self._members.get(name)
        if value is None:
            return None
        if type(value) is not float and type(value) is not int:
            raise wrong_type(name, "a number", value)
        if not low <= value <= high or math.isnan(value):
            raise _out_of_bounds(name, value, low, high)
        return value

    def object(self, name: str) -> dict[str, Any] | None:
        """A JSON object."""
        value = self._members.get(name)
        if value is not None and not isinstance(value, dict):
            raise wrong_type(name, "an object", value)
        return value

    def array(self, name: str, max_count: int) -> list[Any] | None:
        """An array of bounded length."""
        value = self._members.get(name)
        if value is None:
            return None
        if type(value) is not list:
            raise wrong_type(name, "an array", value)
        if len(value) > max_count:
            raise FieldError(name, f"'{name}' has {len(value)} entries; at most {max_count} are allowed.")
        return value


def read_body(body: bytes, limit_bytes: int, is_quick: bool = False) -> Fields:
    """The fields of a request's body. With `is_quick` SlowTextError is raised where it takes long to read."""
    if len(body) > limit_bytes:
        raise TooLargeError(len(body), limit_bytes)
    try:
        root = parse(body, is_quick)
    except (InternalError, InvalidArgumentError) as error:
        raise FieldError(None, f"The request is not valid JSON: {error.message}") from None
    if not isinstance(root, dict):
        raise FieldError(None, "The request has to be a JSON object.")
    return Fields(root)


def wrong_type(name: str, expected: str, value: Any) -> FieldError:
    """The error of a field that holds something else than it should."""
    return FieldError(name, f"'{name}' has to be {expected}, not {_kind_of(value)}.", "invalid_type")


def is_token_ids(value: Any) -> bool:
    """Whether it is a list of token ids."""
    return type(value) is list and all(type(entry) is int and 0 <= entry <= MAX_INTEGER for entry in value)


def _out_of_bounds(name: str, value: float, low: float, high: float) -> FieldError:
    bounds = f"at least {low}" if high == MAX_INTEGER and value < low else f"between {low} and {high}"
    return FieldError(name, f"'{name}' has to be {bounds}, not {value}.", "invalid_value")


def _kind_of(value: Any) -> str:
    kinds = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "an array"}
    return kinds.get(type(value), "an object")
