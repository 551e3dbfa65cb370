"""The format of a model's tool calls and reasoning is found in its chat template."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing import parsed

from trireme.llm.chat.deepseek import OPENING, SEPARATOR
from trireme.llm.chat.events import CallStart
from trireme.llm.chat.formats import REASONING_TAGS, TOOL_FORMATS, find_reasoning, find_tool_format, name_of
from trireme.llm.tokenizer.chat_template import SHIPPED_TEMPLATE

QWEN = 'within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": {}}'


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (QWEN, "hermes"),
        ("<tool_call>\\n<function=example>\\n<parameter=a></tool_call>", "qwen3_coder"),
        ("<seed:tool_call>\\n<function=example>\\n<parameter=a></seed:tool_call>", "seed_oss"),
        ('<minimax:tool_call>\\n<invoke name="tool"></minimax:tool_call>', "minimax"),
        ("<tool_call>{function-name}\\n<arg_key>{key}</arg_key>\\n<arg_value></tool_call>", "glm"),
        ("{{ '[TOOL_CALLS] [' }}{{ tool_call|tojson }}", "mistral"),
        ("{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}", "mistral_args"),
        (f"function{SEPARATOR}' + name + '\\n```json\\n' + arguments", "deepseek"),
        (f"{{{{ name }}}}{SEPARATOR}{{{{ arguments }}}}", "deepseek_v31"),
        ('<|start_header_id|> Respond in the format {"name": function name, "parameters": dictionary}', "llama"),
        ('<|python_tag|> {"name": "x", "parameters": {}}', "llama"),
        ("format of [func_name1(params_name1=params_value1), func_name2()]", "pythonic"),
        (SHIPPED_TEMPLATE, None),
        ("", None),
    ],
)
def test_tool_formats_are_found_in_templates(template: str, name: str | None) -> None:
    assert find_tool_format("auto", template) is (TOOL_FORMATS[name] if name is not None else None)


@pytest.mark.parametrize(
    ("template", "name"),
    [("{{ content.split('</think>')[-1] }}", "think"), ("[THINK]x[/THINK]", "mistral"), (SHIPPED_TEMPLATE, None)],
)
def test_reasoning_is_found_in_templates(template: str, name: str | None) -> None:
    assert find_reasoning("auto", template) is (REASONING_TAGS[name] if name is not None else None)


def test_a_name_decides_whatever_the_template_says() -> None:
    assert find_tool_format("llama", QWEN) is TOOL_FORMATS["llama"]
    assert find_tool_format("none", QWEN) is None
    assert find_reasoning("none", "</think>") is None
    assert find_reasoning("think", "") is REASONING_TAGS["think"]


DSML = "\uff5cDSML\uff5c"
CALLS: dict[str, Callable[[str], str]] = {
    "hermes": lambda name: f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {{}}}}</tool_call>',
    "mistral": lambda name: f'[TOOL_CALLS] [{{"name": {json.dumps(name)}, "arguments": {{}}}}]',
    "mistral_args": lambda name: f"[TOOL_CALLS]{name}[ARGS]{{}}",
    "deepseek": lambda name: f"{OPENING}function{SEPARATOR}{name}\n```json\n{{}}\n```",
    "deepseek_v31": lambda name: f"{OPENING}{name}{SEPARATOR}{{}}",
    "qwen3_coder": lambda name: f"<tool_call>\n<function={name}>\n</function>\n</tool_call>",
    "seed_oss": lambda name: f"<seed:tool_call>\n<function={name}>\n</function>\n</seed:tool_call>",
    "minimax": lambda name: f'<minimax:tool_call>\n<invoke name="{name}">\n</invoke>\n</minimax:tool_call>',
    "glm": lambda name: f"<tool_call>{name}\n</tool_call>",
    "deepseek_v32": lambda name: f'<{DSML}function_calls>\n<{DSML}invoke name="{name}">\n</{DSML}invoke>',
    "pythonic": lambda name: f"[{name}()]",
    "llama": lambda name: f'{{"name": {json.dumps(name)}, "parameters": {{}}}}',
}
"""How each format writes the call of a tool."""


@pytest.mark.parametrize("format_name", TOOL_FORMATS)
@given(st.text(st.sampled_from(">a-_.:b/ \n<\"'[]{}()=,\\1é\t\uff5c"), min_size=1, max_size=6) | st.text(min_size=1))
def test_a_name_that_a_format_takes_is_read_as_it_was_written(format_name: str, name: str) -> None:
    entry = TOOL_FORMATS[format_name]
    if entry.names is not None and not entry.names.pattern.fullmatch(name):
        return
    events = parsed(entry.parser([name]), [CALLS[format_name](name)])
    assert [event.name for event in events if isinstance(event, CallStart)] == [name]


@pytest.mark.parametrize("format_name", TOOL_FORMATS)
@pytest.mark.parametrize("name", ["weather", "get_weather_2", "function", "my.tool", "a"])
def test_usual_names_are_taken_by_all_formats(format_name: str, name: str) -> None:
    entry = TOOL_FORMATS[format_name]
    assert entry.names is None or entry.names.pattern.fullmatch(name)
    assert name_of(entry) == format_name
    events = parsed(entry.parser([name]), [CALLS[format_name](name)])
    assert [event.name for event in events if isinstance(event, CallStart)] == [name]


@pytest.mark.parametrize(
    ("format_name", "name"),
    [
        ("qwen3_coder", "a>b"),
        ("seed_oss", " a"),
        ("minimax", 'a"b'),
        ("deepseek_v32", "a>b"),
        ("glm", "a b"),
        ("mistral_args", "a{b"),
        ("deepseek", "a\nb"),
        ("pythonic", "get-weather"),
        ("pythonic", "import"),
        ("pythonic", "my.class"),
    ],
)
def test_names_that_a_format_cannot_write_are_known(format_name: str, name: str) -> None:
    rule = TOOL_FORMATS[format_name].names
    assert rule is not None
    assert not rule.pattern.fullmatch(name)
    assert not rule.pattern.fullmatch(f"{name}\n")
