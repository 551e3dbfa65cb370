"""Where each field of a model's configuration comes from: its file, what the server completed, or a default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import orjson
from google.protobuf.json_format import MessageToDict

from trireme.config.load import config_bytes, config_path
from trireme.config.text.json_form import to_json
from trireme.config.text.json_parse import from_json
from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import ServingError
from trireme.registry.lifecycle import PolledModel
from trireme.registry.model import Model

_MOST_CHARACTERS: Final = 200_000
_TOKENS: Final = re.compile(
    r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[{}\[\]<>]|(?P<name>[A-Za-z_]\w*)\s*:(?!\s*[{\[<])"""
)
"""Comments, texts, brackets, and names before plain values."""


def file_text(folder: Path, config_name: str | None) -> str:
    """The configuration file of a model's folder as it is; empty where there is none."""
    try:
        data = config_bytes(config_path(folder, config_name)) or b""
    except ServingError:
        return ""
    return data.decode("utf-8", "replace")[:_MOST_CHARACTERS]


def config_in_force(model: Model) -> dict[str, Any]:
    """The configuration that the model runs with."""
    return dict(orjson.loads(to_json(model.config.message)))


def config_written(loaded: PolledModel, config_name: str | None) -> dict[str, Any] | None:
    """What somebody has written: the fields of the file, or of the load that brought its own; None where there is
    nothing that can be read any more. Blocks on the file system; any thread may ask."""
    override = loaded.override
    try:
        if override is not None and override.config_json is not None:
            message, zeros = from_json(override.config_json), _plain_names(override.config_json)
        else:
            path = config_path(loaded.folder, config_name)
            text = path.read_text("utf-8", "replace")
            message, zeros = parse_text(text, str(path)), outermost_names(text)
    except (OSError, ServingError, orjson.JSONDecodeError):
        return None
    return {**dict.fromkeys(zeros, 0), **MessageToDict(message, preserving_proto_field_name=True)}


def _plain_names(config_json: str | bytes) -> list[str]:
    """The fields of a load's configuration with a plain value."""
    return [name for name, value in orjson.loads(config_json).items() if not isinstance(value, (dict, list))]


def outermost_names(text: str) -> list[str]:
    """The fields with a plain value that stand outside of all braces: a message does not tell whether one whose value
    is zero, such as `max_batch_size: 0`, was written."""
    found, depth = [], 0
    for token in _TOKENS.finditer(text):
        depth += {"{": 1, "[": 1, "<": 1, "}": -1, "]": -1, ">": -1}.get(token[0], 0)
        if token["name"] and depth == 0:
            found.append(token["name"])
    return found


def fields_set(model: Model) -> dict[str, Any]:
    """The fields of it that anybody has set: its file, the backend or the server."""
    return dict(MessageToDict(model.config.message, preserving_proto_field_name=True))


def origins(in_force: Any, written: Any, set_by_anybody: Any) -> Any:
    """The configuration's shape with the origin of each leaf: `file`, `completed` or `default`."""
    if isinstance(in_force, dict):
        return {
            name: origins(value, _member(written, name), _member(set_by_anybody, name))
            for name, value in in_force.items()
        }
    if isinstance(in_force, list) and in_force:
        return [
            origins(value, _item(written, index), _item(set_by_anybody, index)) for index, value in enumerate(in_force)
        ]
    if written is not None:
        return "file"
    return "default" if set_by_anybody is None else "completed"


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _item(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, list) and index < len(value) else None
