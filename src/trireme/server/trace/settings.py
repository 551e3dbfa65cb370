"""The trace settings: the ones the server started with, the global ones, and those that models override."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trireme.config.options.trace import TRACE_LEVELS, TraceSettings
from trireme.core.errors import InternalError, InvalidArgumentError, UnsupportedError

OFF = "OFF"
SettingValue = str | list[str]

_INTEGERS = ("trace_rate", "trace_count", "log_frequency")
_RANGES = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, 2**31 - 1), "log_frequency": (0, 2**32 - 1)}
_MAX_DIGITS = 1000
_INTEGER = re.compile(r"\s*[+-]?\d+")


class TraceSettingsStore:
    """Values by field: a model's own, else the global one, else the one from the start.

    They are put together when one of them is changed. Counting traces down changes only those in force, so that a count
    that is nobody's own begins again with the next change, as it does in Triton.
    """

    def __init__(self, start: TraceSettings) -> None:
        self._start = _fields(start)
        self._mode = start.mode
        self._extra = _mode_settings(start)
        self.collector = (start.opentelemetry, start.resource) if start.mode == "opentelemetry" else None
        """How to reach the collector, where traces go to one."""
        self._own: dict[str, dict[str, SettingValue]] = {"": {}}
        self._in_force: dict[str, dict[str, SettingValue]] = {"": dict(self._start)}
        self.on_change: Callable[[Sequence[str]], None] | None = None
        """Told whose settings have been replaced."""

    @property
    def is_any_on(self) -> bool:
        """Whether the global settings or any model's ask for traces."""
        return any(settings["trace_level"] != [OFF] for settings in self._in_force.values())

    @property
    def owners(self) -> list[str]:
        """Who has settings: "" for the global ones, then models, the one that got its own last at the end."""
        return list(self._own)

    def owner_of(self, model: str) -> str:
        """Whose settings count for the model: its own name, or "" for the global ones."""
        return model if model in self._own else ""

    def count_of(self, owner: str) -> int:
        """How many traces are left to take; -1 is no limit."""
        return int(str(self._in_force[owner]["trace_count"]))

    def use_one(self, owner: str) -> None:
        """One of them is taken."""
        left = self._in_force[owner]["trace_count"] = str(self.count_of(owner) - 1)
        if "trace_count" in self._own[owner]:
            self._own[owner]["trace_count"] = left

    def of(self, model: str) -> dict[str, SettingValue]:
        """Every setting in force for the model, or globally for ""."""
        merged = dict(self._in_force[self.owner_of(model)])
        if self._mode == "opentelemetry":
            del merged["log_frequency"], merged["trace_file"]
        return {**merged, "trace_mode": self._mode, **self._extra}

    def update(self, model: str, changes: Mapping[str, Any]) -> None:
        """Changes all of the fields or, where one is wrong, none; None clears a field. Fields that are no settings
        are left aside."""
        if "trace_file" in changes:
            raise UnsupportedError("trace file location can not be updated through network protocol")
        updated = dict(self._own.get(model, {}))
        for name in ("trace_level", *_INTEGERS):
            if name in changes:
                value = _read(name, changes[name])
                if value is None:
                    updated.pop(name, None)
                else:
                    updated[name] = value
        if updated or not model:
            self._check({**self._below(model), **updated})
        replaced = self._replace(model, updated)
        if self.on_change is not None:
            self.on_change(replaced)

    def _replace(self, owner: str, updated: dict[str, SettingValue]) -> list[str]:
        """Puts settings together anew; global ones reach every model. Whose settings those are."""
        if owner and not updated:
            self._in_force.pop(owner, None)
            return [] if self._own.pop(owner, None) is None else [owner]
        self._own[owner] = updated
        replaced = [owner] if owner else self.owners
        for each in replaced:
            self._in_force[each] = {**self._below(each), **self._own[each]}
        return replaced

    def _below(self, owner: str) -> dict[str, SettingValue]:
        """What counts where the owner has no value of its own."""
        return self._in_force[""] if owner else self._start

    def _check(self, settings: Mapping[str, SettingValue]) -> None:
        """Refuses settings that ask for traces and would never take one."""
        if settings["trace_level"] == [OFF]:
            return
        if settings["trace_rate"] == "0":
            reason = "sample rate must be non-zero"
        elif self._mode == "triton" and not settings["trace_file"]:
            reason = "trace file name is not given"
        elif settings["trace_count"] == "0":
            reason = "trace count must be non-zero"
        else:
            return
        raise InvalidArgumentError(f"Attempting to set invalid trace setting :{reason}")


def _read(name: str, value: object) -> SettingValue | None:
    if value is None:
        return None
    return _read_levels(value) if name == "trace_level" else _read_integer(name, value)


def _read_levels(value: object) -> SettingValue | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InternalError("attempt to access JSON non-array as array")
    levels = []
    for level in value:
        if not isinstance(level, str):
            raise InternalError("attempt to access JSON non-string as string")
        if level in TRACE_LEVELS:
            levels.append(level)
    if OFF in levels and len(value) > 1:
        raise InvalidArgumentError("Expect only one trace level 'OFF' is specified")
    return levels or [OFF]


def _read_integer(name: str, value: object) -> SettingValue:
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]  # gRPC has lists for everything
    if not isinstance(value, str):
        raise InternalError("attempt to access JSON non-string as string")
    if not _INTEGER.fullmatch(value) or len(value) > _MAX_DIGITS:
        raise InvalidArgumentError(f"Unable to parse '{name}', got: {value}")
    number = int(value)
    low, high = _RANGES[name]
    if number > high:
        raise InvalidArgumentError(f"Unable to parse '{name}', value is out of range [ {low}, {high} ], got: {value}")
    if name == "trace_count" and number < low:
        raise InvalidArgumentError(f"Unable to parse 'trace_count'. Expecting value >= -1, got:{value}")
    if number < low:
        raise InvalidArgumentError(f"Unable to parse '{name}', got: {value}")
    return str(number)


def _fields(start: TraceSettings) -> dict[str, SettingValue]:
    return {
        "trace_level": list(start.level),
        "trace_rate": str(start.rate),
        "trace_count": str(start.count),
        "log_frequency": str(start.log_frequency),
        "trace_file": start.file,
    }


def _mode_settings(start: TraceSettings) -> dict[str, SettingValue]:
    if start.mode != "opentelemetry":
        return {}
    resource: dict[str, SettingValue] = (
        {"resource": ",".join(f"{key}={value}" for key, value in start.resource.items())} if start.resource else {}
    )
    return {**start.opentelemetry, **resource}
