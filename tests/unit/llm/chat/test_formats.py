"""The format of a model's tool calls and reasoning is found in its chat template."""

from __future__ import annotations

import pytest

from trireme.llm.chat.deepseek import SEPARATOR
from trireme.llm.chat.formats import REASONING_TAGS, TOOL_FORMATS, find_reasoning, find_tool_format
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
