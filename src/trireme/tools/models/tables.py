"""The index and the configuration of models as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

from trireme.core.datatype import from_config
from trireme.observe.terminal.appearance import line_width, painted
from trireme.observe.terminal.plain_text import shown_name
from trireme.observe.terminal.table import render_table

STYLES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}

_PLAIN_FIELDS = ("backend", "platform", "max_batch_size", "default_model_filename")


def index_table(entries: Sequence[dict[str, str]], stream: TextIO) -> str:
    """Every version with its state, and the reason where it has one."""
    has_reasons = any(entry.get("reason") for entry in entries)
    headers = ("Model", "Version", "State", "Reason")[: 4 if has_reasons else 3]
    rows = [
        (entry["name"], entry.get("version") or "-", state_of(entry), entry.get("reason", ""))[: len(headers)]
        for entry in entries
    ]
    return coloured(render_table(headers, rows, line_width(stream)), stream)


def state_of(entry: dict[str, str]) -> str:
    """A model that nobody has loaded has none."""
    return entry.get("state") or "not loaded"


def coloured(table: str, stream: TextIO) -> str:
    """The states in their colours, which no width counts."""
    for state, style in STYLES.items():
        table = table.replace(f" {state} ", f" {painted(state, style, stream)} ")
    return table


def config_text(config: dict[str, Any], stream: TextIO) -> str:
    """What matters of a configuration: the tensors, and every other field that says something."""
    width = line_width(stream)
    fields = [(name, str(config[name])) for name in _PLAIN_FIELDS if config.get(name) not in (None, "")]
    fields += [
        (name, _compact(value))
        for name, value in config.items()
        if name not in ("name", "input", "output", *_PLAIN_FIELDS) and _says_something(value)
    ]
    parts = [
        painted(shown_name(config.get("name", "")), "bold", stream),
        render_table(("Field", "Value"), fields, width),
    ]
    for title, name in (("Inputs", "input"), ("Outputs", "output")):
        if config.get(name):
            parts.append(f"{title}\n{_tensor_table(config[name], width)}")
    return "\n\n".join(parts)


def _tensor_table(entries: Sequence[dict[str, Any]], width: int | None) -> str:
    rows = [_tensor_row(entry) for entry in entries]
    headers = ("Name", "Datatype", "Dims", "")[: 4 if any(row[3] for row in rows) else 3]
    return render_table(headers, [row[: len(headers)] for row in rows], width)


def _tensor_row(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    dims = ", ".join(str(dim) for dim in entry.get("dims", ()))
    more = [
        word
        for word, is_so in (("optional", entry.get("optional")), ("ragged", entry.get("allow_ragged_batch")))
        if is_so
    ]
    more += [f"labels {entry['label_filename']}"] if entry.get("label_filename") else []
    more += [f"reshape [{', '.join(map(str, entry['reshape'].get('shape', ())))}]"] if entry.get("reshape") else []
    return entry["name"], from_config(entry.get("data_type", "")), f"[{dims}]", ", ".join(more)


def _says_something(value: Any) -> bool:
    """Whether it is more than the emptiness that every configuration has."""
    if isinstance(value, dict):
        return any(_says_something(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_says_something(inner) for inner in value)
    return value not in (None, "", 0, "0", False, "PRIORITY_DEFAULT", "FORMAT_NONE")


def _compact(value: Any) -> str:
    """The value without what says nothing, one line for each member of a table."""
    value = _said(value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_one_line(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "\n".join(_one_line(inner) for inner in value)
    return str(value)


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"string_value"}:
            return value["string_value"]
        return {name: _said(inner) for name, inner in value.items() if _says_something(inner)}
    return [_said(inner) for inner in value] if isinstance(value, list) else value


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
