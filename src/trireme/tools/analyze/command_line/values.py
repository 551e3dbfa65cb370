"""Values of settings, be they texts of flags or what a YAML file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.tools.analyze.errors import InputError


class Values:
    """Settings by name, read with their kinds; raises InputError with the name where one cannot be."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None

    def raw(self, name: str) -> Any:
        return self._given.get(name)

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, (dict, list)):
            raise InputError(f"{name} is a text, not {value!r}")
        return str(value)

    def words(self, name: str) -> list[str]:
        """A list, or texts with commas."""
        value = self._given.get(name)
        if value is None:
            return []
        parts = value if isinstance(value, list) else [value]
        return [word.strip() for part in parts for word in str(part).split(",") if word.strip()]

    def texts(self, name: str) -> list[str]:
        """A list of whole texts, or one."""
        value = self._given.get(name)
        if value is None:
            return []
        return [str(part) for part in (value if isinstance(value, list) else [value])]

    def is_on(self, name: str) -> bool:
        value = self._given.get(name, False)
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "1", "yes", "on"):
            return True
        if str(value).lower() in ("false", "0", "no", "off", "none"):
            return False
        raise InputError(f"{name} is true or false, not '{value}'")

    def whole(self, name: str, default: int, least: int = 0) -> int:
        value = self._given.get(name)
        return default if value is None else whole(name, value, least)

    def number(self, name: str, default: float, least: float = 0.0) -> float:
        value = self._given.get(name)
        return default if value is None else number(name, value, least)

    def numbers(self, name: str, least: float = 1) -> tuple[float, ...]:
        """A list, a text with commas, or a range with start, stop and step."""
        value = self._given.get(name)
        if isinstance(value, Mapping):
            unknown = set(value) - {"start", "stop", "step"}
            if unknown or "start" not in value or "stop" not in value:
                raise InputError(f"{name} has start, stop and perhaps step, not {dict(value)!r}")
            start, stop = whole(name, value["start"], 1), whole(name, value["stop"], 1)
            return tuple(range(start, stop + 1, whole(name, value.get("step", 1), 1)))
        return tuple(number(name, word, least) for word in self.words(name))


def whole(name: str, value: Any, least: int = 0) -> int:
    found = number(name, value, least)
    if found != int(found):
        raise InputError(f"{name} is a whole number, not '{value}'")
    return int(found)


def number(name: str, value: Any, least: float = 0.0) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is a number, not '{value}'") from None
    if isinstance(value, bool) or not found >= least or found == float("inf"):
        raise InputError(f"{name} is a number of at least {least:g}, not '{value}'")
    return found
