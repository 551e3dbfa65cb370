"""Settings that clients may read and change while the server runs: the log, and traces."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, Final

from trireme.core.errors import InternalError, InvalidArgumentError, ServingError, UnsupportedError
from trireme.observe.logs import LogSettings
from trireme.registry.registry import ModelRegistry
from trireme.server.audit import audited
from trireme.server.trace.settings import SettingValue, TraceSettingsStore

_BOOLEANS = ("log_info", "log_warning", "log_error")
_SHOWN_LENGTH: Final = 80
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHOWN_LENGTH


class Settings:
    """Checks what clients send; None for a field leaves a log setting and clears a trace setting."""

    def __init__(self, registry: ModelRegistry, log_settings: LogSettings, trace: TraceSettingsStore) -> None:
        self._registry = registry
        self._log = log_settings
        self._trace = trace

    def log_settings(self) -> dict[str, bool | int | str]:
        """Every log setting by name."""
        return self._log.as_dict()

    def update_log_settings(self, changes: Mapping[str, Any]) -> dict[str, bool | int | str]:
        """Changes all of the settings or, where one is wrong, none; returns the full set."""
        with audited("set", f"log {_listed(changes)}"):
            self._update_log(changes)
        return self._log.as_dict()

    def _update_log(self, changes: Mapping[str, Any]) -> None:
        accepted = {name: value for name, value in changes.items() if value is not None and name in self._log.as_dict()}
        if "log_file" in accepted:
            raise UnsupportedError("log file location can not be updated through network protocol")
        for name, value in accepted.items():
            _check_log_type(name, value)
        self._log.update(accepted)
        if "log_verbose_level" in accepted:
            self._tell_models(self._log.log_verbose_level)

    def _tell_models(self, verbose_level: int) -> None:
        """Models log in processes of their own, which are told which lines are wanted."""
        for model in self._registry.models.serving():
            tell = getattr(model.backend, "set_verbose_level", None)
            if tell is not None:
                tell(verbose_level)

    def trace_settings(self, model: str) -> dict[str, SettingValue]:
        """The settings in force for a model, or globally for ""."""
        self._check_model(model)
        return self._trace.of(model)

    def update_trace_settings(self, model: str, changes: Mapping[str, Any]) -> dict[str, SettingValue]:
        """Changes a model's settings, or the global ones for ""; returns the full set."""
        whose = f" of model '{model}'" if model else ""
        with audited("set", f"trace {_listed(changes)}{whose}"):
            self._check_model(model)
            self._trace.update(model, changes)
        return self._trace.of(model)

    def _check_model(self, model: str) -> None:
        if not model:
            return
        try:
            self._registry.find(model, "")
        except ServingError as error:
            raise InvalidArgumentError(f"Request for unknown model : {model}") from error


def _listed(changes: Mapping[str, Any]) -> str:
    """The changes in the words of an audit line, the long ones cut."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in list(changes.items())[:16]) or "nothing"


def _shown(value: object) -> str:
    """The beginning alone is looked at: a value may be as deep as JSON is read, which is deeper than Python writes."""
    return (value if isinstance(value, str) else _SHORT.repr(value))[:_SHOWN_LENGTH]


def _check_log_type(name: str, value: object) -> None:
    if name in _BOOLEANS and not isinstance(value, bool):
        raise InternalError("attempt to access JSON non-boolean as boolean")
    if name == "log_verbose_level" and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InternalError("attempt to access JSON non-unsigned-integer as unsigned-integer")
    if name == "log_format" and not isinstance(value, str):
        raise InternalError("attempt to access JSON non-string as string")
