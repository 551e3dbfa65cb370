"""The grammars of answers that must call a tool in the formats that write arguments as elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trireme.llm.chat.argument_values import is_text
from trireme.llm.chat.tools import Mark, Rules, Tool, join_bodies, repeated
from trireme.llm.chat.xml_calls import GLM, GLM_KEY_CLOSING, GLM_VALUE, XmlTags
from trireme.llm.grammar.sources import json_rule, literal

_TEXT = "/(?s:.*)/"


def xml_rules(tags: XmlTags, says_type: bool = False) -> Rules:
    """Of a format; `says_type`: the tags of arguments say whether they are texts."""

    def rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
        def key(name: str, schema: Any) -> str:
            said = f' string="{str(is_text(schema)).lower()}"' if says_type else ""
            return literal(f"{tags.key}{name}{tags.quote}{said}>{tags.line}")

        bodies, lines = [], []
        for number, tool in enumerate(tools):
            head = literal(f"{tags.call}{tool.name}{tags.quote}>{tags.line}")
            arguments, own = _arguments(tool, number, tags, mark, key)
            bodies.append(f"{head} {arguments} {mark(tags.call_closing)}")
            lines += own
        one = f"{mark(tags.opening)} {literal(tags.line)} body {literal(tags.line)} {mark(tags.closing)}"
        return "\n".join([repeated(one, literal("\n"), may_be_many), join_bodies(bodies), *lines])

    return rules


def glm_rules(tools: Sequence[Tool], mark: Mark, may_be_many: bool) -> str:
    """Of GLM."""

    def key(name: str, schema: Any) -> str:
        return f'{mark(GLM.key)} {literal(name)} {mark(GLM_KEY_CLOSING)} "\\n" {mark(GLM_VALUE)}'

    bodies, lines = [], []
    for number, tool in enumerate(tools):
        arguments, own = _arguments(tool, number, GLM, mark, key)
        bodies.append(f"{literal(tool.name + chr(10))} {arguments}")
        lines += own
    one = f"{mark(GLM.opening)} body {mark(GLM.closing)}"
    return "\n".join([repeated(one, literal("\n"), may_be_many), join_bodies(bodies), *lines])


def _arguments(
    tool: Tool, number: int, tags: XmlTags, mark: Mark, key: Callable[[str, Any], str]
) -> tuple[str, list[str]]:
    """The arguments in the schema's order, those that need not be there with a question mark; and their rules."""
    properties = tool.parameters.get("properties") or {}
    shared = {name: tool.parameters[name] for name in ("$defs", "definitions") if name in tool.parameters}
    required = tool.parameters.get("required") or ()
    names, lines = [], []
    for place, (name, schema) in enumerate(properties.items()):
        rule = f"argument_{number}_{place}"
        nested = {**shared, **schema} if isinstance(schema, Mapping) else schema
        lines.append(f'{rule}: {key(name, schema)} value_{number}_{place} "\\n"')
        lines += _value(f"value_{number}_{place}", nested, tags, mark)
        names.append(rule if name in required else f"{rule}?")
    return " ".join(names) or '""', lines


def _value(rule: str, schema: Any, tags: XmlTags, mark: Mark) -> list[str]:
    closing = mark(tags.value_closing)
    if not is_text(schema):
        line = literal(tags.line if tags is not GLM else "")
        return [f"{rule}: {rule}_json {line} {closing}", f"{rule}_json: {json_rule(schema)}"]
    if "enum" in schema:
        choices = " | ".join(literal(str(choice)) for choice in schema["enum"])
        return [f"{rule}: ({choices}) {closing}"]
    if closing.startswith("<["):  # a token of its own, which no text can hold
        return [f"{rule}: {rule}_text {closing}", f"{rule}_text: {_TEXT}"]
    return [f"{rule}[suffix={closing}]: {_TEXT}"]
