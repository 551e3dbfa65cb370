"""TraceSetting and LogSettings."""

from __future__ import annotations

import re
from typing import Any

from trireme.core.errors import InvalidArgumentError, UnsupportedError
from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2

_LOG_KINDS = {
    "log_info": ("bool_param", "boolean"),
    "log_warning": ("bool_param", "boolean"),
    "log_error": ("bool_param", "boolean"),
    "log_verbose_level": ("uint32_param", "int32"),
    "log_format": ("string_param", "string"),
}
_LOG_FORMATS = ("default", "ISO8601")
_TOO_SMALL_COUNT = re.compile(r"\s*-0*([2-9]|1\d)\d*")


def _log_settings(server: Any, request: Any) -> Any:
    changes: dict[str, bool | int | str] = {}
    if "log_file" in request.settings:
        raise UnsupportedError("log file location can not be updated through network protocol")
    for key, value in request.settings.items():
        if key not in _LOG_KINDS:
            continue
        field, label = _LOG_KINDS[key]
        if value.WhichOneof("parameter_choice") != field:
            raise InvalidArgumentError(f"expect {label} for '{key}'")
        changes[key] = getattr(value, field)
    if changes.get("log_format", "default") not in _LOG_FORMATS:
        raise InvalidArgumentError(f"invalid argument for log_format, got: {changes['log_format']}")
    settings = server.settings
    current = settings.update_log_settings(changes) if changes else settings.log_settings()
    response = service_pb2.LogSettingsResponse()
    for key, value in current.items():
        setattr(response.settings[key], _field_of(value), value)
    return response


def _trace_setting(server: Any, request: Any) -> Any:
    model = request.model_name
    settings = server.settings
    current = settings.trace_settings(model)  # refuses a model that is not there before looking at values
    changes: dict[str, list[str] | str | None] = {}
    for key, value in request.settings.items():
        values = list(value.value)
        if key == "trace_level":
            changes[key] = values or None
        elif len(values) > 1:
            raise InvalidArgumentError(f"expect only 1 value for '{key}'")
        else:
            changes[key] = values[0] if values else None
    count = changes.get("trace_count")
    if isinstance(count, str) and _TOO_SMALL_COUNT.fullmatch(count):
        raise InvalidArgumentError(f"Unable to parse 'trace_count'. Expecting value >= -1, got: {count}")
    if changes:
        current = settings.update_trace_settings(model, changes)
    response = service_pb2.TraceSettingResponse()
    for key, value in current.items():
        response.settings[key].value.extend([value] if isinstance(value, str) else value)
    return response


def _field_of(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return "bool_param"
    return "uint32_param" if isinstance(value, int) else "string_param"


SETTINGS_METHODS = (
    unary(f"/{INFERENCE_SERVICE}/TraceSetting", "trace", service_pb2.TraceSettingRequest, _trace_setting),
    unary(f"/{INFERENCE_SERVICE}/LogSettings", "logging", service_pb2.LogSettingsRequest, _log_settings),
)
