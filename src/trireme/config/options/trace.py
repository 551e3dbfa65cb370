"""`--trace-config` and the values it sets: the trace mode, level, rate, count and the mode's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trireme.config.options.option import OptionError, ValueKind
from trireme.config.options.values import parse_int

TRACE_MODES = ("triton", "opentelemetry")
TRACE_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")

OPENTELEMETRY_DEFAULTS = {
    "bsp_max_queue_size": "2048",
    "bsp_schedule_delay": "5000",
    "bsp_max_export_batch_size": "512",
}


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The trace settings the server starts with."""

    mode: str = "triton"
    level: tuple[str, ...] = ("OFF",)
    rate: int = 1000
    """Every how many requests one is traced."""
    count: int = -1
    """How many traces are left to take; -1 is no limit."""
    file: str = ""
    log_frequency: int = 0
    """Traces per file; 0 is one file, written at shutdown."""
    opentelemetry: Mapping[str, str] = field(default_factory=lambda: dict(OPENTELEMETRY_DEFAULTS))
    """Settings of the opentelemetry mode (`url`, `bsp_*`)."""
    resource: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the opentelemetry resource."""


TraceSetting = tuple[str, str, str]
"""(mode or "", setting, value), as one flag gives it."""


def read_trace_setting(text: str, flag: str) -> TraceSetting:
    """`<setting>=<value>` or `<mode>,<setting>=<value>`, checked."""
    head, equals, value = text.partition("=")
    mode, comma, setting = head.rpartition(",")
    if not (setting and equals and value) or (comma and not mode):
        raise OptionError(f"--{flag} option format is '<trace mode>,<setting>=<value>'. Got {text}", flag)
    if mode:
        _check_mode(mode, flag)
    else:
        check_general(setting, value, f"{flag} {setting}")
    return mode, setting, value


def check_general(setting: str, value: str, flag: str) -> None:
    """Raises OptionError where a setting that belongs to no mode has a value it cannot have."""
    if setting == "mode":
        _check_mode(value, flag)
    elif setting == "level":
        for level in value.split(","):
            if level.upper() not in TRACE_LEVELS:
                raise OptionError(f"invalid value for trace level option: {value.lower()}", flag)
    elif setting in ("rate", "count"):
        parse_int(value, flag)


def gather_trace_settings(values: Sequence[TraceSetting], flag: str) -> TraceSettings:
    """All occurrences as one value; levels and resources add up, everything else is as given last."""
    gathered: dict[str, Any] = {}
    levels: list[str] = []
    opentelemetry = dict(OPENTELEMETRY_DEFAULTS)
    resource: dict[str, str] = {}
    for mode, setting, value in values:
        if mode == "opentelemetry":
            _collect_opentelemetry(setting, value, opentelemetry, resource, flag)
        elif mode == "triton" and setting == "file":
            gathered["file"] = value
        elif mode == "triton" and setting == "log-frequency":
            gathered["log_frequency"] = parse_int(value, f"{flag} {setting}")
        elif not mode and setting == "level":
            levels += [level.upper() for level in value.split(",")]
        elif not mode and setting in ("rate", "count"):
            gathered[setting] = parse_int(value, flag)
        elif not mode and setting == "mode":
            gathered["mode"] = value
    return TraceSettings(**gathered, level=_joined_levels(levels), opentelemetry=opentelemetry, resource=resource)


def _joined_levels(levels: Sequence[str]) -> tuple[str, ...]:
    tracing = tuple(dict.fromkeys(level for level in levels if level != "OFF"))
    return tracing or ("OFF",)


def _collect_opentelemetry(
    setting: str, value: str, settings: dict[str, str], resource: dict[str, str], flag: str
) -> None:
    if setting != "resource":
        settings[setting] = value
        return
    key, equals, attribute = value.partition("=")
    if not (key and equals):
        raise OptionError(f"resource is given as resource=<key>=<value>. Got {value}", f"{flag} {setting}")
    resource[key] = attribute


def _check_mode(mode: str, flag: str) -> None:
    if mode not in TRACE_MODES:
        raise OptionError(
            f'invalid value for trace mode option: {mode}. Available options are "triton" and "opentelemetry"', flag
        )


TRACE_SETTINGS = ValueKind("<string>,<string>=<string>", read_trace_setting, gather_trace_settings)
