"""Chat templates against the transformers package, and what is said about messages that do not fit."""

from __future__ import annotations

import importlib
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from trireme.llm.tokenizer.chat_template import (
    SHIPPED_TEMPLATE,
    JinjaTemplate,
    NoTemplate,
    ShippedTemplate,
    load_chat_template,
)
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import ChatError, TokenizerError

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

from tiny_tokenizers import byte_level, write_folder

NAMES = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n" }}
    {%- for tool in tools %}
        {{- "\\n" }}{{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{%- continue %}{%- endif %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.content %}
        {{- '\\n' + message.content }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n' + (call.function | tojson(indent=1)) + '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thinks is defined and not thinks %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

LLAMA3 = """{{- bos_token }}
{%- if not date is defined %}
    {%- set date = strftime_now("%d %b %Y") %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + date + "<|eot_id|>" }}
{% for message in messages %}
    {% if message.role == 'assistant' %}
        {% generation %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
        {% endgeneration %}
    {% else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {% endif %}
{% endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}
{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}
{% endfor %}
"""

PARTS = (
    "{% for message in messages %}{{ message.role }}:{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'text' %}[{{ part.text }}]{% endif %}{% endfor %}"
    "{% endif %};{% endfor %}"
)

TALK = [
    {"role": "user", "content": '  Hello <b>"you"</b> & é 日本  '},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "What is 1 + 1?"},
]
SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "é < ü", "parameters": {"type": "object"}}}]
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}


def rendered(
    template: str, messages: list[dict[str, Any]], tools: Any = None, prompt: bool = True, **extra: Any
) -> str:
    return JinjaTemplate({"default": template}).render(messages, tools, prompt, NAMES, extra)


CASES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "chatml": (CHATML, TALK, {}),
    "chatml with a system prompt": (CHATML, [SYSTEM, *TALK], {}),
    "chatml with tools": (CHATML, [SYSTEM, *TALK], {"tools": TOOLS}),
    "chatml with a tool's answer": (CHATML, [TALK[0], CALL, {"role": "tool", "content": "2"}], {"tools": TOOLS}),
    "chatml with more variables": (CHATML, TALK, {"thinks": False}),
    "llama 3": (LLAMA3, [SYSTEM, *TALK], {"date": "1 Jan 2025"}),
    "mistral": (MISTRAL, TALK, {}),
    "shipped": (SHIPPED_TEMPLATE, [SYSTEM, *TALK], {}),
    "parts": (PARTS, [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], {}),
}


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_rendered_as_transformers_renders(tmp_path: Path, name: str, prompt: bool) -> None:
    transformers = pytest.importorskip("transformers")
    template, messages, extra = CASES[name]
    folder = write_folder(tmp_path, byte_level(), template)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    wanted = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **extra)
    more = dict(extra)
    assert rendered(template, messages, more.pop("tools", None), prompt, **more) == wanted
    ids = theirs.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False, **extra)
    assert load_tokenizer(folder).chat(messages, add_generation_prompt=prompt, **extra) == ids


@pytest.mark.parametrize("name", ["chatml", "llama 3", "mistral", "parts"])
def test_a_last_message_is_continued_as_transformers_does(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    template, messages, extra = CASES[name]
    messages = [*messages[:1], {"role": "assistant", "content": "Well, I"}] if name != "parts" else messages
    theirs = transformers.AutoTokenizer.from_pretrained(write_folder(tmp_path, byte_level(), template))
    wanted = theirs.apply_chat_template(messages, tokenize=False, continue_final_message=True, **extra)
    assert rendered(template, messages, continue_final_message=True, **extra) == wanted


def test_a_template_that_leaves_the_last_message_out_cannot_continue_it() -> None:
    with pytest.raises(ChatError, match="does not write the last message"):
        rendered("{{ messages[0].content }}", TALK, continue_final_message=True)


def test_the_shipped_template_needs_no_jinja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, byte_level())
    monkeypatch.setitem(sys.modules, "jinja2", None)
    template = load_chat_template(folder)
    assert isinstance(template, ShippedTemplate)
    monkeypatch.undo()
    for messages in (TALK, [SYSTEM, *TALK], TALK[:2]):
        for prompt in (True, False):
            assert template.render(messages, None, prompt, NAMES, {}) == rendered(
                SHIPPED_TEMPLATE, messages, None, prompt
            )
    begun = [TALK[0], {"role": "assistant", "content": "Well, I"}]
    assert template.render(begun, None, True, NAMES, {"continue_final_message": True}).endswith("assistant\nWell, I")


def test_the_shipped_template_is_that_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[4]))
    assert importlib.import_module("training.chat_format").CHAT_TEMPLATE == SHIPPED_TEMPLATE


def test_without_jinja_other_templates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(TokenizerError, match="pip install jinja2"):
        JinjaTemplate({"default": MISTRAL})


def test_a_version_of_jinja_whose_sandbox_leaks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("jinja2"), "__version__", "3.1.5")
    with pytest.raises(TokenizerError, match=r"3\.1\.6 or newer, found 3\.1\.5"):
        JinjaTemplate({"default": MISTRAL})


def test_today_is_known_to_templates() -> None:
    assert datetime.now().strftime("%d %b %Y") in rendered(LLAMA3, TALK)


def test_a_template_cannot_reach_the_interpreter() -> None:
    with pytest.raises(ChatError):
        rendered("{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}", TALK)
    with pytest.raises(ChatError):
        rendered("{{ messages.append(1) }}", TALK)


def test_a_file_counts_more_than_the_configuration(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level(), CHATML)
    (folder / "chat_template.jinja").write_text("from the file")
    assert load_chat_template(folder).render(TALK, None, True, NAMES, {}) == "from the file"


def test_tools_choose_their_own_template(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]
    folder = write_folder(tmp_path, byte_level(), None, chat_template=named)
    template = load_chat_template(folder)
    assert template.render(TALK, None, True, NAMES, {}) == "plain"
    assert template.render(TALK, TOOLS, True, NAMES, {}) == "1 tools"


def test_arguments_that_are_json_in_a_text_are_read() -> None:
    call = json.loads(json.dumps(CALL))
    call["tool_calls"][0]["function"]["arguments"] = '{"a": 1}'
    assert rendered(CHATML, [TALK[0], call]) == rendered(CHATML, [TALK[0], CALL])
    for broken in ("{broken", f'{{"a": {"9" * 5000}}}'):
        call["tool_calls"][0]["function"]["arguments"] = broken
        with pytest.raises(ChatError, match="tool call 'add' in message 1 are no JSON"):
            rendered(CHATML, [TALK[0], call])


def test_parts_become_one_text_where_the_template_wants_texts() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert rendered(MISTRAL, parts) == rendered(MISTRAL, [{"role": "user", "content": "a\nb"}])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "'messages' is empty"),
        ("hello", "must be a list of messages, found str"),
        (["hello"], "message 0 must be an object"),
        ([{"content": "a"}], "message 0 has no 'role'"),
        ([TALK[0], {"role": "assistant"}], "message 1 of the role 'assistant' has no 'content'"),
        ([{"role": "user", "content": 5}], "content of message 0 must be a text or a list of parts, found int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "part 0 of message 0 has the type 'image_url'"),
        (
            [TALK[0], {"role": "assistant", "tool_calls": 5}],
            "'tool_calls' of message 1 must be a list, found int",
        ),
        ([{"role": "user", "content": [7]}], "part 0 of message 0 must be an object with a 'type', found int"),
        ([TALK[0], TALK[0]], "Conversation roles must alternate"),
        ([SYSTEM, TALK[0]], "Conversation roles must alternate"),
    ],
)
def test_what_is_wrong_with_messages_is_said(messages: Any, words: str) -> None:
    with pytest.raises(ChatError, match=words):
        rendered(MISTRAL, messages)


def test_roles_that_the_shipped_model_does_not_know_are_refused() -> None:
    with pytest.raises(ChatError, match="message 0 has the role 'tool': the model knows system, user, assistant"):
        ShippedTemplate().render([{"role": "tool", "content": "2"}], None, True, NAMES, {})


def test_calls_that_the_shipped_model_cannot_be_told_of_are_refused_in_those_words() -> None:
    with pytest.raises(ChatError, match="message 1 has no 'content': the model's chat template writes no calls of too"):
        ShippedTemplate().render([TALK[0], CALL], None, True, NAMES, {})
    with_text = {**CALL, "content": "<tool_call>"}
    assert "assistant\n<tool_call><|im_end|>" in ShippedTemplate().render([TALK[0], with_text], None, True, NAMES, {})


def test_a_developer_is_the_system_where_the_template_has_no_word_of_it() -> None:
    told = [{"role": "developer", "content": "Be brief."}, TALK[0]]
    meant = [{**told[0], "role": "system"}, TALK[0]]
    for template in (ShippedTemplate(), NoTemplate()):
        assert template.render(told, None, True, NAMES, {}) == template.render(meant, None, True, NAMES, {})
    assert rendered("{% for m in messages %}{{ m['role'] }} {% endfor %}", told) == "system user "
    asks = "{% for m in messages %}{{ '!' if m['role'] == 'developer' else m['role'] }} {% endfor %}"
    assert rendered(asks, told) == "! user "
    assert told[0]["role"] == "developer"  # the client's own message


def test_a_broken_template_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(TokenizerError, match="cannot be read"):
        JinjaTemplate({"default": "{% for %}"})
