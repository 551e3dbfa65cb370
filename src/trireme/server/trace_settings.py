"""The trace settings: the ones the server started with, the global ones, and those that models override."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trireme.config.option_trace import TRACE_LEVELS, TraceSettings
from trireme.core.errors import InternalError, InvalidArgumentError, UnsupportedError

OFF = "OFF"
SettingValue = str | list[str]

_INTEGERS = ("trace_rate", "trace_count", "log_frequency")
_RANGES = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, 2**31 - 1), "log_frequency": (0, 2**32 - 1)}
_MAX_DIGITS = 1000
_INTEGER = re.compile(r"\s*[+-]?\d+")


class TraceSettingsStore:
    """Values by field: a model's own, else the global one, else the one from the start."""

    def __init__(self, start: TraceSettings) -> None:
        self._start = _fields(start)
        self._mode = start.mode
        self._extra = _mode_settings(start)
        self.collector = (start.opentelemetry, start.resource) if start.mode == "opentelemetry" else None
        """How to reach the collector, where traces go to one."""
        self._global: dict[str, SettingValue] = {}
        self._models: dict[str, dict[str, SettingValue]] = {}
        self.on_change: Callable[[], None] | None = None

    @property
    def is_any_on(self) -> bool:
        """Whether the global settings or any model's ask for traces."""
        return any(self.of(owner)["trace_level"] != [OFF] for owner in ("", *self._models))

    def owner_of(self, model: str) -> str:
        """Whose settings count for the model: its own name, or "" for the global ones."""
        return model if model in self._models else ""

    def count_of(self, owner: str) -> int:
        """How many traces are left to take; -1 is no limit."""
        return int(str(self.of(owner)["trace_count"]))

    def use_one(self, owner: str) -> None:
        """One of them is taken."""
        own = self._models[owner] if owner and "trace_count" in self._models[owner] else self._global
        own["trace_count"] = str(self.count_of(owner) - 1)

    def of(self, model: str) -> dict[str, SettingValue]:
        """Every setting in force for the model, or globally for ""."""
        merged = {**self._start, **self._global, **self._models.get(model, {})}
        if self._mode == "opentelemetry":
            del merged["log_frequency"], merged["trace_file"]
        return {**merged, "trace_mode": self._mode, **self._extra}

    def update(self, model: str, changes: Mapping[str, Any]) -> None:
        """Changes all of the fields or, where one is wrong, none; None clears a field. Fields that are no settings
        are left aside."""
        if "trace_file" in changes:
            raise UnsupportedError("trace file location can not be updated through network protocol")
        own = self._models.get(model, {}) if model else self._global
        updated = dict(own)
        for name in ("trace_level", *_INTEGERS):
            if name in changes:
                value = _read(name, changes[name])
                if value is None:
                    updated.pop(name, None)
                else:
                    updated[name] = value
        self._check_file({**self._start, **self._global, **updated})
        if not model:
            self._global = updated
        elif updated:
            self._models[model] = updated
        else:
            self._models.pop(model, None)
        if self.on_change is not None:
            self.on_change()

    def _check_file(self, settings: Mapping[str, SettingValue]) -> None:
        if self._mode == "triton" and settings["trace_level"] != [OFF] and not settings["trace_file"]:
            raise InvalidArgumentError("Attempting to set invalid trace setting :trace file name is not given")


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
