"""The ModelConfig message as Triton prints it in JSON, and (from `json_parse`) the way back."""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import Any

from trireme.config.message import ConfigMessage, is_map
from trireme.config.text.json_parse import from_json
from trireme.proto import model_config_pb2

__all__ = ["from_json", "to_json"]

# Triton turns 64-bit integers back from protobuf's strings to numbers field by field and leaves these out.
_INTEGERS_AS_TEXT = {
    "inference.ModelSequenceBatching.InitialState.dims",
    "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    "inference.ModelInstanceGroup.SecondaryDevice.device_id",
}
_ESCAPES = {
    **{chr(code): f"\\u{code:04X}" for code in range(0x20)},
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}
_TO_ESCAPE = re.compile(r'[\x00-\x1f"\\]')


def to_json(message: ConfigMessage) -> str:
    """Fields under their proto names in declared order, defaults included, unset messages left out, no blanks."""
    return _message_text(message)


def _message_text(message: model_config_pb2.Message) -> str:
    members = []
    for field in _printing_order(message.DESCRIPTOR):
        is_always_printed = field.is_repeated or (field.message_type is None and field.containing_oneof is None)
        if is_always_printed or message.HasField(field.name):
            members.append(f'"{field.name}":{_field_text(field, getattr(message, field.name))}')
    return "{" + ",".join(members) + "}"


@cache
def _printing_order(descriptor: Any) -> list[Any]:
    """Declared order, except that a plain value inside a `oneof` comes last, as Triton has it."""
    return sorted(
        descriptor.fields, key=lambda field: field.containing_oneof is not None and field.message_type is None
    )


def _field_text(field: Any, value: Any) -> str:
    if is_map(field):
        # The message keeps no order of its own for maps; sorting makes the text the same every time.
        item_field = field.message_type.fields_by_name["value"]
        keys = sorted(value, key=str)
        return "{" + ",".join(f"{_string_text(str(key))}:{_value_text(item_field, value[key])}" for key in keys) + "}"
    if field.is_repeated:
        return "[" + ",".join(_value_text(field, item) for item in value) + "]"
    return _value_text(field, value)


def _value_text(field: Any, value: Any) -> str:
    if field.message_type is not None:
        return _message_text(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return f'"{known.name}"' if known is not None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string_text(value)
    if isinstance(value, float):
        return _float_text(value, is_single=field.cpp_type == field.CPPTYPE_FLOAT)
    return f'"{value}"' if field.full_name in _INTEGERS_AS_TEXT else str(value)


def _string_text(value: str) -> str:
    return '"' + _TO_ESCAPE.sub(lambda match: _ESCAPES[match.group()], value) + '"'


def _float_text(value: float, is_single: bool) -> str:
    """Triton prints a number twice: protobuf's shortest `%g`, read again and written by its JSON library."""
    if value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    text = _shortest(value, is_single)
    if re.fullmatch(r"-?\d+", text):
        return str(int(text))
    return _plain_decimal(float(text))


def _shortest(value: float, is_single: bool) -> str:
    few, many = (6, 9) if is_single else (15, 17)
    short = f"{value:.{few}g}"
    survives = struct.pack("f", float(short)) == struct.pack("f", value) if is_single else float(short) == value
    return short if survives else f"{value:.{many}g}"


def _plain_decimal(value: float) -> str:
    """Exponents only outside 1e-6..1e21, written without `+` and leading zeros."""
    mantissa, _, exponent_text = f"{value!r}".lower().partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent_text or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0") or "0"
    if len(digits) <= point <= 21:
        return f"{sign}{digits.ljust(point, '0')}.0"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1}"
