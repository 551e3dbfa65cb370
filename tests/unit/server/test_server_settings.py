"""Log and trace settings: what may be changed, by whom, and how far a change reaches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from trireme.config.options.trace import TraceSettings
from trireme.core.errors import ErrorKind
from trireme.observe.logs import LogSettings
from trireme.server.settings import Settings
from trireme.server.trace.settings import TraceSettingsStore


@pytest.fixture
def _same_log() -> Iterator[None]:
    """Gives the log back as it was."""
    logger = logging.getLogger("trireme")
    before = (logger.handlers, logger.propagate, logger.level)
    yield
    logger.handlers, logger.propagate, logger.level = before


@pytest.fixture
def settings(world: Any) -> Settings:
    world.add("model")
    world.add("other")
    world.add("bad", code="fail boom")
    server = asyncio.run(world.started())
    return Settings(server.registry, LogSettings(), TraceSettingsStore(TraceSettings(rate=500, file="trace.json")))


DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.mark.usefixtures("_same_log")
def test_log_settings_change_and_are_returned_whole(settings: Settings) -> None:
    assert settings.log_settings() == DEFAULTS
    changed = settings.update_log_settings({"log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"})
    assert changed == {**DEFAULTS, "log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"}
    assert settings.log_settings() == changed


@pytest.mark.usefixtures("_same_log")
def test_a_new_verbose_level_reaches_the_models_that_want_to_know(settings: Settings, world: Any) -> None:
    told: list[int] = []
    world.backends.of("model")[0].set_verbose_level = told.append
    settings.update_log_settings({"log_info": True})
    settings.update_log_settings({"log_verbose_level": 3})
    settings.update_log_settings({"log_verbose_level": 0})
    assert told == [3, 0]


@pytest.mark.usefixtures("_same_log")
def test_null_and_unknown_log_settings_change_nothing(settings: Settings) -> None:
    assert settings.update_log_settings({"log_file": None, "log_info": None, "zork": 1}) == DEFAULTS


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"log_file": "x"},
            ErrorKind.UNSUPPORTED,
            "log file location can not be updated through network protocol",
        ),
        ({"log_format": "zz"}, ErrorKind.UNAVAILABLE, "invalid argument for --log_format, got: zz"),
        ({"log_format": 1}, ErrorKind.INTERNAL, "attempt to access JSON non-string as string"),
        ({"log_info": 1}, ErrorKind.INTERNAL, "attempt to access JSON non-boolean as boolean"),
        (
            {"log_verbose_level": -1},
            ErrorKind.INTERNAL,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"log_verbose_level": True},
            ErrorKind.INTERNAL,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
    ],
)
def test_wrong_log_settings_change_nothing(
    settings: Settings, world: Any, changes: dict[str, Any], kind: ErrorKind, text: str
) -> None:
    error = world.refused(lambda: settings.update_log_settings({"log_warning": False, **changes}))
    assert (error.kind, error.message) == (kind, text)
    assert settings.log_settings() == DEFAULTS


@pytest.mark.parametrize("depth", [1, 1024, 10_000])
def test_deep_values_are_refused_for_their_types(
    settings: Settings, world: Any, caplog: pytest.LogCaptureFixture, depth: int
) -> None:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    refused = [
        world.refused(lambda: settings.update_log_settings({"log_info": deep})),
        world.refused(lambda: settings.update_trace_settings("", {"trace_level": deep})),
        world.refused(lambda: settings.update_trace_settings("", {"trace_rate": {"a": deep}})),
    ]
    assert [error.message for error in refused] == [
        "attempt to access JSON non-boolean as boolean",
        "attempt to access JSON non-string as string",
        "attempt to access JSON non-string as string",
    ]
    assert "set log log_info=[[" in caplog.text


def test_trace_settings_of_the_start(settings: Settings) -> None:
    assert settings.trace_settings("") == {
        "trace_level": ["OFF"],
        "trace_rate": "500",
        "trace_count": "-1",
        "log_frequency": "0",
        "trace_file": "trace.json",
        "trace_mode": "triton",
    }


def test_global_change_reaches_models_that_did_not_override_the_field(settings: Settings) -> None:
    settings.update_trace_settings("model", {"trace_rate": "9"})
    settings.update_trace_settings("", {"trace_rate": "11", "trace_count": "5"})
    assert settings.trace_settings("model")["trace_rate"] == "9"
    assert settings.trace_settings("model")["trace_count"] == "5"
    assert settings.trace_settings("other")["trace_rate"] == "11"


def test_cleared_fields_fall_back(settings: Settings) -> None:
    settings.update_trace_settings("", {"trace_rate": "11"})
    settings.update_trace_settings("model", {"trace_rate": "9"})
    assert settings.update_trace_settings("model", {"trace_rate": None})["trace_rate"] == "11"
    assert settings.update_trace_settings("", {"trace_rate": None})["trace_rate"] == "500"


def test_trace_levels(settings: Settings) -> None:
    levels = settings.update_trace_settings("", {"trace_level": ["TIMESTAMPS", "TENSORS"]})["trace_level"]
    assert levels == ["TIMESTAMPS", "TENSORS"]
    assert settings.update_trace_settings("", {"trace_level": ["OFF"]})["trace_level"] == ["OFF"]
    assert settings.update_trace_settings("", {"trace_level": ["XX"]})["trace_level"] == ["OFF"]


def test_traces_need_a_file(world: Any) -> None:
    server = asyncio.run(world.started())
    error = world.refused(lambda: server.settings.update_trace_settings("", {"trace_level": ["TIMESTAMPS"]}))
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    assert error.message == "Attempting to set invalid trace setting :trace file name is not given"
    assert server.settings.trace_settings("")["trace_level"] == ["OFF"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"trace_rate": "0"}, "sample rate must be non-zero"), ({"trace_count": "0"}, "trace count must be non-zero")],
)
@pytest.mark.parametrize("model", ["", "model"])
def test_settings_under_which_nothing_would_be_traced(
    settings: Settings, world: Any, model: str, change: dict[str, str], reason: str
) -> None:
    before = settings.trace_settings(model)
    on = {"trace_level": ["TIMESTAMPS"]}
    error = world.refused(lambda: settings.update_trace_settings(model, {**on, **change}))
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    assert error.message == f"Attempting to set invalid trace setting :{reason}"
    assert settings.trace_settings(model) == before
    settings.update_trace_settings(model, change)  # nothing is asked for while tracing is off
    assert world.refused(lambda: settings.update_trace_settings("model", on)).message == error.message
    cleared = dict.fromkeys(change)
    assert settings.update_trace_settings(model, {**cleared, **on})["trace_level"] == ["TIMESTAMPS"]


def test_lists_of_one_are_read_as_values(settings: Settings) -> None:
    assert settings.update_trace_settings("", {"trace_rate": ["7"]})["trace_rate"] == "7"


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"trace_file": "x"},
            ErrorKind.UNSUPPORTED,
            "trace file location can not be updated through network protocol",
        ),
        (
            {"trace_file": None},
            ErrorKind.UNSUPPORTED,
            "trace file location can not be updated through network protocol",
        ),
        (
            {"trace_level": ["OFF", "TIMESTAMPS"]},
            ErrorKind.INVALID_ARGUMENT,
            "Expect only one trace level 'OFF' is specified",
        ),
        ({"trace_level": "OFF"}, ErrorKind.INTERNAL, "attempt to access JSON non-array as array"),
        ({"trace_rate": "x"}, ErrorKind.INVALID_ARGUMENT, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": "-3"}, ErrorKind.INVALID_ARGUMENT, "Unable to parse 'trace_rate', got: -3"),
        ({"trace_rate": 5}, ErrorKind.INTERNAL, "attempt to access JSON non-string as string"),
        ({"log_frequency": "1x"}, ErrorKind.INVALID_ARGUMENT, "Unable to parse 'log_frequency', got: 1x"),
        ({"trace_rate": "9" * 5000}, ErrorKind.INVALID_ARGUMENT, f"Unable to parse 'trace_rate', got: {'9' * 5000}"),
        (
            {"trace_count": "9" * 20},
            ErrorKind.INVALID_ARGUMENT,
            f"Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: {'9' * 20}",
        ),
        (
            {"trace_rate": "4294967296"},
            ErrorKind.INVALID_ARGUMENT,
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 4294967296",
        ),
        (
            {"trace_count": "-2"},
            ErrorKind.INVALID_ARGUMENT,
            "Unable to parse 'trace_count'. Expecting value >= -1, got:-2",
        ),
    ],
)
def test_wrong_trace_settings_change_nothing(
    settings: Settings, world: Any, changes: dict[str, Any], kind: ErrorKind, text: str
) -> None:
    before = settings.trace_settings("")
    error = world.refused(lambda: settings.update_trace_settings("", {"trace_rate": "3", **changes}))
    assert (error.kind, error.message) == (kind, text)
    assert settings.trace_settings("") == before


@pytest.mark.parametrize("model", ["zz", "bad"])
def test_trace_settings_of_a_model_that_does_not_serve(settings: Settings, world: Any, model: str) -> None:
    for call in (lambda: settings.trace_settings(model), lambda: settings.update_trace_settings(model, {})):
        error = world.refused(call)
        assert (error.kind, error.message) == (ErrorKind.INVALID_ARGUMENT, f"Request for unknown model : {model}")


def test_opentelemetry_has_settings_of_its_own(world: Any) -> None:
    server = asyncio.run(world.started())
    start = TraceSettings(mode="opentelemetry", opentelemetry={"url": "http://host"}, resource={"a": "b"})
    shown = Settings(server.registry, LogSettings(), TraceSettingsStore(start)).trace_settings("")
    assert shown == {
        "trace_level": ["OFF"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": "http://host",
        "resource": "a=b",
    }
