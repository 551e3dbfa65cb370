"""Reads `config.pbtxt`, and says what is wrong with one that cannot be read."""

from __future__ import annotations

import re

from google.protobuf import text_format

from trireme.config.message import ConfigMessage, check_enums, new_config
from trireme.config.nearest import suggestion
from trireme.config.text.pbtxt_tokens import Position, repaired
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "([^"]*)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named (.+)\.')
_LOCATION = re.compile(r"^\d+:\d+ : (?:'.*': )?", re.DOTALL)


def parse_text(text: str, path: str) -> ConfigMessage:
    """The message written in `text`; `path` is only named in errors, which are always InvalidArgumentError."""
    plain = repaired(text)
    message = new_config()
    try:
        text_format.Parse(plain, message)
    except text_format.ParseError as error:
        raise InvalidArgumentError(f"failed to read text proto from {path}: {_described(error, plain)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"failed to read text proto from {path}: {_first_line(error)}") from None
    try:
        check_enums(message)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"failed to read text proto from {path}: {error.message}") from None
    return message


def _described(error: text_format.ParseError, text: str) -> str:
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    position = Position(text, line, column)
    field = position.field_path()
    where = f"{line}:{column}: " + (f"field '{field}': " if field else "")
    placeholder = position.placeholder()
    if placeholder is not None:
        return f"{where}the placeholder {placeholder} is not filled in, put a value in its place"
    return where + _reason(str(error))


def _reason(complaint: str) -> str:
    pool = model_config_pb2.DESCRIPTOR.pool
    unknown_field = _UNKNOWN_FIELD.search(complaint)
    if unknown_field is not None:
        names = [field.name for field in pool.FindMessageTypeByName(unknown_field[1]).fields]
        kind, name = unknown_field[1].rpartition(".")[2], unknown_field[2]
        return f"{kind} has no field named '{name}'{suggestion(name, names)}"
    unknown_value = _UNKNOWN_VALUE.search(complaint)
    if unknown_value is not None:
        enum_type = pool.FindEnumTypeByName(unknown_value[1])
        names = [value.name for value in enum_type.values]
        return f"{enum_type.name} has no value '{unknown_value[2]}'{suggestion(unknown_value[2], names)}"
    return _LOCATION.sub("", complaint)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
