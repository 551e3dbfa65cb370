"""Reads a ModelConfig written in JSON: a load override, or what a model's auto-complete returns."""

from __future__ import annotations

import json
import math
from typing import Any

from trireme.config.message import ConfigMessage, is_map, new_config
from trireme.config.nearest import suggestion
from trireme.core.errors import InvalidArgumentError
from trireme.core.reading.json_levels import read_json
from trireme.proto import model_config_pb2

_SHOWN_LENGTH = 80
_FLOAT_MAX = 3.4028234663852886e38


def from_json(text: str | bytes) -> ConfigMessage:
    """The message; enum names in any case, numbers also as strings, `null` as absent, proto or camelCase names.

    Raises InvalidArgumentError naming the path of the member that is wrong.
    """
    try:
        members = read_json(text)
    except ValueError as error:
        raise InvalidArgumentError(f"not valid JSON: {error}") from None
    if not isinstance(members, dict):
        raise InvalidArgumentError(": Root element must be a message.")
    message = new_config()
    _fill(message, members, "")
    return message


def _fill(message: model_config_pb2.Message, members: dict[str, Any], path: str) -> None:
    descriptor = message.DESCRIPTOR
    for key, value in members.items():
        _check_key(key, path)
        field = descriptor.fields_by_name.get(key) or descriptor.fields_by_camelcase_name.get(key)
        here = f"{path}.{key}" if path else key
        if field is None:
            names = [known.name for known in descriptor.fields]
            raise InvalidArgumentError(f"{here}: Cannot find field{suggestion(key, names)}")
        if value is None:
            continue
        _check_oneof(message, field, here)
        if is_map(field):
            _fill_map(getattr(message, field.name), field, value, here)
        elif field.is_repeated:
            _fill_repeated(getattr(message, field.name), field, value, here)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(inner, _object(field, value, here), here)
        else:
            setattr(message, field.name, _scalar(field, value, here))


def _check_key(key: str, path: str) -> None:
    """Half a surrogate pair is a string in JSON, and no text that could be looked for or told."""
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{path or 'Root element'}: a name is no text: {error.reason}") from None


def _check_oneof(message: model_config_pb2.Message, field: Any, path: str) -> None:
    if field.containing_oneof is None:
        return
    present = message.WhichOneof(field.containing_oneof.name)
    if present is not None and present != field.name:
        raise InvalidArgumentError(
            f"{path}: oneof field '{field.containing_oneof.name}' is already set by '{present}'. Cannot set "
            f"'{field.name}'"
        )


def _fill_repeated(target: Any, field: Any, value: Any, path: str) -> None:
    """A single value stands for a list of one, as Triton allows."""
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        here = f"{path}[{index}]"
        if field.message_type is not None:
            _fill(target.add(), _object(field, item, here), here)
        else:
            target.append(_scalar(field, item, here))


def _fill_map(target: Any, field: Any, value: Any, path: str) -> None:
    key_field = field.message_type.fields_by_name["key"]
    value_field = field.message_type.fields_by_name["value"]
    for key, item in _object(field, value, path).items():
        _check_key(key, path)
        here = f"{path}['{key}']"
        typed_key = _scalar(key_field, key, here)
        if value_field.message_type is not None:
            _fill(target[typed_key], _object(value_field, item, here), here)
        else:
            target[typed_key] = _scalar(value_field, item, here)


def _object(field: Any, value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        raise InvalidArgumentError(f"{path}: Proto field is not repeating, cannot start list.")
    raise _invalid(path, value, "an object" if is_map(field) else field.message_type.name)


def _scalar(field: Any, value: Any, path: str) -> Any:
    if field.enum_type is not None:
        return _enum_number(field.enum_type, value, path)
    if field.cpp_type == field.CPPTYPE_STRING:
        if isinstance(value, str) and _is_unicode(value):
            return value
        raise _invalid(path, value, "string")
    if field.cpp_type == field.CPPTYPE_BOOL:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise _invalid(path, value, "bool")
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return _float(field, value, path)
    return _integer(field, value, path)


def _enum_number(enum_type: Any, value: Any, path: str) -> int:
    if isinstance(value, str):
        for known in enum_type.values:
            if known.name == value.upper().replace("-", "_"):
                return int(known.number)
        names = [known.name for known in enum_type.values]
        raise InvalidArgumentError(f"{_invalid(path, value, enum_type.name).message}{suggestion(value, names)}")
    if isinstance(value, int) and not isinstance(value, bool) and value in enum_type.values_by_number:
        return value
    raise _invalid(path, value, enum_type.name)


def _integer(field: Any, value: Any, path: str) -> int:
    bits = 64 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
    is_signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    kind = f"{'int' if is_signed else 'uint'}{bits}"
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    number = _number(value)
    if number is None or number != number or number in (math.inf, -math.inf) or int(number) != number:
        raise _invalid(path, value, kind)
    if not lowest <= number <= highest:
        raise _invalid(path, value, kind)
    return int(number)


def _float(field: Any, value: Any, path: str) -> float:
    number = _number(value)
    if number is None:
        raise _invalid(path, value, "number")
    try:
        real = float(number)
    except OverflowError:
        raise _invalid(path, value, "number") from None
    if field.cpp_type == field.CPPTYPE_FLOAT and math.isfinite(real) and abs(real) > _FLOAT_MAX:
        raise _invalid(path, value, "float")
    return real


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or value.strip() != value or "_" in value:
        return None
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return None


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _invalid(path: str, value: Any, kind: str) -> InvalidArgumentError:
    shown = json.dumps(value)
    if len(shown) > _SHOWN_LENGTH:
        shown = shown[:_SHOWN_LENGTH] + "..."
    return InvalidArgumentError(f"({path}): invalid value {shown} for type {kind}")
