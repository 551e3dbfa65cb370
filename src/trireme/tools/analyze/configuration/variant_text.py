"""Configurations as text: a variant as a whole, and a user's own file with only what changes changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from trireme.config.message import ConfigMessage, copy_of, new_config
from trireme.config.text.json_parse import from_json
from trireme.config.text.pbtxt import parse_text
from trireme.config.text.pbtxt_tokens import Token, tokens
from trireme.core.errors import InvalidArgumentError
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.trial import Setting

_OPENING, _CLOSING = "{<[", "}>]"


def variant_text(
    config: Mapping[str, Any], repository: str | None = None, model: str = "", setting: Setting | None = None
) -> str:
    """The text of a configuration; where the user's own file can be read, that file with the changes of the setting."""
    if repository is not None and setting is not None:
        path = Path(repository) / model / "config.pbtxt"
        try:
            return edited(path.read_text(encoding="utf-8"), config, setting, str(path))
        except (OSError, UnicodeDecodeError):  # it is not there, or no text: the whole is shown
            pass
    return _text(from_json(json.dumps(config)))


def edited(text: str, config: Mapping[str, Any], setting: Setting, path: str) -> str:
    """The file with the fields of a setting as they are in `config`, and everything else as it is, comments included.

    Raises InputError where the file cannot be read.
    """
    try:
        own = parse_text(text, path)
    except InvalidArgumentError as error:
        raise InputError(error.message) from None
    wanted = copy_of(own)
    new = from_json(json.dumps(config))
    names = changed_fields(setting)
    for name in names:
        _copy_field(new, wanted, name)
    if own == wanted:
        return text
    result = _without(text, names).rstrip("\n")
    added = new_config()
    for name in names:
        _copy_field(wanted, added, name)
    result = f"{result}\n{_text(added)}"
    if parse_text(result, path) != wanted:  # the file has spellings that cannot be cut out
        return _text(wanted)
    return result


def changed_fields(setting: Setting) -> list[str]:
    """The fields of the configuration that a setting decides."""
    names = []
    if setting.max_batch_size is not None:
        names += ["max_batch_size", "dynamic_batching"]
    if setting.instances is not None:
        names.append("instance_group")
    if setting.max_sequences is not None or setting.max_step_tokens is not None:
        names.append("parameters")
    if setting.other:
        names += list(json.loads(setting.other))
    return list(dict.fromkeys(names))


def _copy_field(source: ConfigMessage, target: ConfigMessage, name: str) -> None:
    target.ClearField(name)
    only = new_config()
    only.CopyFrom(source)
    for field, _ in source.ListFields():
        if field.name != name:
            only.ClearField(field.name)
    target.MergeFrom(only)


def _text(message: ConfigMessage) -> str:
    return str(text_format.MessageToString(message))


def _without(text: str, names: list[str]) -> str:
    """The text without these fields of the outermost level."""
    for start, end, name in reversed(_fields(text)):
        if name in names:
            line_end = end
            while line_end < len(text) and text[line_end] in " \t,;":
                line_end += 1
            if text[line_end : line_end + 1] == "\n" and (start == 0 or text[start - 1] == "\n"):
                line_end += 1
            text = text[:start] + text[line_end:]
    return text


def _fields(text: str) -> list[tuple[int, int, str]]:
    """Start, end and name of every field of the outermost level."""
    found: list[tuple[int, int, str]] = []
    depth = 0
    all_tokens = tokens(text)
    for number, token in enumerate(all_tokens):
        is_name = depth == 0 and token.kind == "word" and _begins_field(all_tokens, number)
        if is_name:
            found.append((token.start, token.start, token.text))
        if token.text in _OPENING and token.kind == "mark":
            depth += 1
        elif token.text in _CLOSING and token.kind == "mark":
            depth -= 1
        if found and token.text not in (",", ";"):
            start, _, name = found[-1]
            found[-1] = (start, token.start + len(token.text), name)
    return found


def _begins_field(all_tokens: list[Token], number: int) -> bool:
    before = all_tokens[number - 1].text if number else ""
    after = all_tokens[number + 1].text if number + 1 < len(all_tokens) else ""
    return before != ":" and (after == ":" or after in _OPENING) and after != ""
