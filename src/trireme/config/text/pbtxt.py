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
        where = f"{error.GetLine() or 1}:{error.GetColumn() or 1}"
        raise InvalidArgumentError(
            f"failed to read text proto from {path}: {where}: {described(error, plain)}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"failed to read text proto from {path}: {_first_line(error)}") from None
    try:
        check_enums(message)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"failed to read text proto from {path}: {error.message}") from None
    return message


def described(error: text_format.ParseError, text: str) -> str:
    """The field and what is wrong there, with what was probably meant."""
    position = Position(text, error.GetLine() or 1, error.GetColumn() or 1)
    field = position.field_path()
    where = f"field '{field}': " if field else ""
    placeholder = position.placeholder()
    if placeholder is not None:
        return f"{where}the placeholder {placeholder} is not filled in, put a value in its place"
    return where + _reason(str(error))


def names_for(complaint: str) -> tuple[str, list[str]]:
    """The name that protobuf does not know, and those that it does at that place; empty where it complains of
    something else."""
    pool = model_config_pb2.DESCRIPTOR.pool
    unknown_field = _UNKNOWN_FIELD.search(complaint)
    if unknown_field is not None:
        return unknown_field[2], [field.name for field in pool.FindMessageTypeByName(unknown_field[1]).fields]
    unknown_value = _UNKNOWN_VALUE.search(complaint)
    if unknown_value is not None:
        return unknown_value[2], [value.name for value in pool.FindEnumTypeByName(unknown_value[1]).values]
    return "", []


def _reason(complaint: str) -> str:
    name, names = names_for(complaint)
    unknown_field = _UNKNOWN_FIELD.search(complaint)
    if unknown_field is not None:
        kind = unknown_field[1].rpartition(".")[2]
        return f"{kind} has no field named '{name}'{suggestion(name, names)}"
    unknown_value = _UNKNOWN_VALUE.search(complaint)
    if unknown_value is not None:
        kind = unknown_value[1].rpartition(".")[2]
        return f"{kind} has no value '{name}'{suggestion(name, names)}"
    return _LOCATION.sub("", complaint)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
