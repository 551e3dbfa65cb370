"""The tools that a request offers, and the grammars of answers that must call one."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trireme.llm.chat import deepseek, hermes, mistral, xml_calls
from trireme.llm.grammar.sources import json_rule, literal

Mark = Callable[[str], str]
"""Writes a tag as a part of a grammar: as a special token where it is one, as a text otherwise."""
Rules = Callable[[Sequence["Tool"], Mark, bool], str]
"""Rules in Lark's notation whose `calls` is what calls look like; several of them where that is allowed."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What a model may call."""

    name: str
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}, "additionalProperties": False}
    )
    """A JSON schema."""


@dataclass(frozen=True, slots=True)
class NameRule:
    """Which names of tools a format can write, so that they are read as they were."""

    pattern: re.Pattern[str]
    words: str
    """The same for people."""


_PYTHON_NAME = rf"(?!(?:{'|'.join(keyword.kwlist)})\b)[A-Za-z_]\w*"
IN_TAG = NameRule(
    re.compile(r'[^\s<>"](?:[^\n<>"]*[^\s<>"])?'), 'no <, >, " or line break, and no blank at its beginning or end'
)
BEFORE_JSON = NameRule(
    re.compile(r"[^\s<\[{](?:[^\n<\[{]*[^\s<\[{])?"), "no <, [, { or line break, and no blank at its beginning or end"
)
OF_GLM = NameRule(xml_calls.GLM_NAME, "letters, digits, _, -, ., : and / alone")
OF_PYTHON = NameRule(
    re.compile(rf"{_PYTHON_NAME}(?:\.{_PYTHON_NAME})*", re.ASCII),
    "letters, digits and _ alone, as Python's names are made, or several of those with dots between them",
)


def hermes_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    one = f'{mark(hermes.OPENING)} "\\n" body "\\n" {mark(hermes.CLOSING)}'
    return f"{repeated(one, literal(chr(10)), may_be_many)}\n{_objects(tools, 'arguments')}"


def llama_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    return f"{repeated('body', literal('; '), may_be_many)}\n{_objects(tools, 'parameters')}"


def mistral_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    more = ' (", " body)*' if may_be_many else ""
    return f'calls: {mark(mistral.OPENING)} "[" body{more} "]"\n{_objects(tools, "arguments")}'


def later_mistral_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    bodies = [f"{literal(tool.name)} {mark(mistral.ARGUMENTS)} {json_rule(tool.parameters)}" for tool in tools]
    one = f"{mark(mistral.OPENING)} body"
    return f"{repeated(one, '', may_be_many)}\n{join_bodies(bodies)}"


def deepseek_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    bodies = [
        f'"function" {mark(deepseek.SEPARATOR)} {literal(tool.name + chr(10) + "```json" + chr(10))} '
        f'{json_rule(tool.parameters)} "\\n```"'
        for tool in tools
    ]
    return _deepseek(bodies, mark, may_be_many, literal("\n"))


def later_deepseek_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    bodies = [f"{literal(tool.name)} {mark(deepseek.SEPARATOR)} {json_rule(tool.parameters)}" for tool in tools]
    return _deepseek(bodies, mark, may_be_many, "")


def pythonic_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    more = ' (", " body)*' if may_be_many else ""
    lines = [f'calls: "[" body{more} "]"']
    bodies = []
    for number, tool in enumerate(tools):
        bodies.append(f'{literal(tool.name + "(")} first_{number}_0 ")"')
        lines += _keywords(tool, number)
    return "\n".join([*lines, join_bodies(bodies)])


def _keywords(tool: Tool, number: int) -> list[str]:
    """Arguments by their names, in the schema's order; `first` has none before it, `rest` has."""
    properties = tool.parameters.get("properties") or {}
    shared = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
    required = tool.parameters.get("required") or ()
    lines = []
    for place, (name, schema) in enumerate(properties.items()):
        nested = {**shared, **schema} if isinstance(schema, Mapping) else schema
        lines.append(f"value_{number}_{place}: {json_rule(nested)}")
        key = f"{name}="
        taken = f"value_{number}_{place} rest_{number}_{place + 1}"
        first, rest = [f"{literal(key)} {taken}"], [f"{literal(', ' + key)} {taken}"]
        if name not in required:
            first.append(f"first_{number}_{place + 1}")
            rest.append(f"rest_{number}_{place + 1}")
        lines += [f"first_{number}_{place}: {' | '.join(first)}", f"rest_{number}_{place}: {' | '.join(rest)}"]
    end = len(properties)
    return [*lines, f'first_{number}_{end}: ""', f'rest_{number}_{end}: ""']


def _deepseek(bodies: Sequence[str], mark: Mark, may_be_many: bool, between: str) -> str:
    one = f"{mark(deepseek.OPENING)} body {mark(deepseek.CLOSING)}"
    several = repeated(one, between, may_be_many).removeprefix("calls: ")
    return f"calls: {mark(deepseek.ALL_OPENING)} {several} {mark(deepseek.ALL_CLOSING)}\n{join_bodies(bodies)}"


def _objects(tools: Sequence[Tool], key: str) -> str:
    """Names and arguments as JSON. The schema of the arguments is a root of its own, so that its references hold."""
    return join_bodies(
        [
            f"{literal('{' + json.dumps('name') + ': ' + json.dumps(tool.name) + ', ' + json.dumps(key) + ': ')} "
            f'{json_rule(tool.parameters)} "}}"'
            for tool in tools
        ]
    )


def join_bodies(bodies: Sequence[str]) -> str:
    """The rules of what is called, of which one is `body`."""
    names = [f"body_{number}" for number in range(len(bodies))]
    rules = [f"{name}: {body}" for name, body in zip(names, bodies, strict=True)]
    return "\n".join([f"body: {' | '.join(names)}", *rules])


def repeated(one: str, between: str, may_be_many: bool) -> str:
    """The rule `calls`: one call, or several."""
    return f"calls: {one} ({between} {one})*" if may_be_many else f"calls: {one}"
