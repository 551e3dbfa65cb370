"""The `inference.ModelConfig` message: its type, the names of its enum values and the check that they are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

from trireme.config.nearest import suggestion
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

ConfigMessage: TypeAlias = model_config_pb2.ModelConfig
"""A whole configuration; the messages inside it are those of `model_config_pb2`."""

M = TypeVar("M", bound="model_config_pb2.Message")


def new_config() -> ConfigMessage:
    return model_config_pb2.ModelConfig()


def copy_of(message: M) -> M:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def enum_name(message: model_config_pb2.Message, field_name: str) -> str:
    """`TYPE_FP32` for the value of an enum field; the number as text where the schema has no such value."""
    number = getattr(message, field_name)
    value = message.DESCRIPTOR.fields_by_name[field_name].enum_type.values_by_number.get(number)
    return str(number if value is None else value.name)


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def check_enums(message: model_config_pb2.Message) -> None:
    """Refuses numbers that no enum value has, which protobuf lets through and nothing after it expects."""
    for _, text in wrong_enums(message):
        raise InvalidArgumentError(text)


def wrong_enums(message: model_config_pb2.Message) -> Iterator[tuple[str, str]]:
    """The path of the field, and the sentence."""
    for path, field, number in _enum_values(message, ""):
        if number not in field.enum_type.values_by_number:
            names = [value.name for value in field.enum_type.values]
            yield path, f"{path}: invalid value {number} for enum {field.enum_type.name}{suggestion('', names)}"


def _enum_values(message: model_config_pb2.Message, path: str) -> Iterator[tuple[str, Any, int]]:
    for field, value in message.ListFields():
        here = f"{path}.{field.name}" if path else field.name
        if is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    yield from _enum_values(value[key], f"{here}['{key}']")
        elif field.enum_type is None and field.message_type is None:
            continue
        elif field.is_repeated:
            for index, item in enumerate(value):
                yield from _enum_or_inner(field, item, f"{here}[{index}]")
        else:
            yield from _enum_or_inner(field, value, here)


def _enum_or_inner(field: Any, value: Any, path: str) -> Iterator[tuple[str, Any, int]]:
    if field.enum_type is not None:
        yield path, field, value
    else:
        yield from _enum_values(value, path)
