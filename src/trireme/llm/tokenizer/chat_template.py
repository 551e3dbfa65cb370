"""Chat templates: how a model wants a conversation written down.

Most folders bring theirs in Jinja, which is rendered as the transformers package renders it. The shipped model's format
is known here, so that it needs no package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trireme.llm.tokenizer.messages import plain_data, plain_messages
from trireme.llm.tokenizer.port import ChatError, Message, TokenizerError
from trireme.llm.tokenizer.special_tokens import read_json

SHIPPED_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The template of the shipped model, which is rendered without Jinja."""

_CONTINUATION = "\ue000the answer goes on here\ue001"
_NAMES_OF_ROLES = {"function": "Tool"}
_ROLES_OF_SHIPPED = ("system", "user", "assistant")

Tools = Sequence[Mapping[str, Any]] | None


class ChatTemplate(Protocol):
    """Immutable; may be called from any thread."""

    @property
    def source(self) -> str:
        """Its text, the one for tools where there are several; "": there is none."""
        ...

    def render(
        self,
        messages: Sequence[Message],
        tools: Tools,
        add_generation_prompt: bool,
        special_tokens: Mapping[str, str],
        extra: Mapping[str, Any],
    ) -> str:
        """The conversation as one text. Raises ChatError where the messages do not fit."""
        ...


class NoTemplate:
    """Of a model that brings none: it goes on with a line for each message, and an open one at the end."""

    source = ""

    def render(
        self,
        messages: Sequence[Message],
        tools: Tools,
        add_generation_prompt: bool,
        special_tokens: Mapping[str, str],
        extra: Mapping[str, Any],
    ) -> str:
        if tools:
            raise ChatError(
                "the model has no chat template, and so no way to be told of tools: neither chat_template.jinja nor "
                "'chat_template' in tokenizer_config.json. Ask it without tools, or add a template to its folder"
            )
        lines = [
            f"{_NAMES_OF_ROLES.get(message['role'], message['role'].capitalize())}: {message.get('content') or ''}"
            for message in _checked(messages, self.source)
        ]
        return "\n".join([*lines, "Assistant:"] if add_generation_prompt else lines)


class ShippedTemplate:
    """The format of the shipped model: every turn between `<|im_start|>` and `<|im_end|>`."""

    source = SHIPPED_TEMPLATE

    def render(
        self,
        messages: Sequence[Message],
        tools: Tools,
        add_generation_prompt: bool,
        special_tokens: Mapping[str, str],
        extra: Mapping[str, Any],
    ) -> str:
        checked = _checked(messages, self.source)
        text = special_tokens.get("bos_token", "")
        for index, message in enumerate(checked):
            role, content = message["role"], message.get("content")
            if role not in _ROLES_OF_SHIPPED:
                raise ChatError(
                    f"message {index} has the role '{role}': the model knows {', '.join(_ROLES_OF_SHIPPED)}"
                )
            if content is None:
                raise ChatError(
                    f"message {index} has no 'content': the model's chat template writes no calls of tools; send those "
                    "of an answer as the text of its 'content'"
                )
            text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
        if extra.get("continue_final_message"):
            return text.removesuffix("<|im_end|>\n")
        return f"{text}<|im_start|>assistant\n" if add_generation_prompt else text


class JinjaTemplate:
    """A template of the model's folder; where there are several, the one for tools is taken when tools are given."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        """`sources`: by name; `default` has to be there, `tool_use` may."""
        from trireme.llm.tokenizer.jinja_environment import compile_template

        self._sources = dict(sources)
        self.source = sources.get("tool_use", sources["default"])
        self._compiled = {name: compile_template(source) for name, source in sources.items()}

    def render(
        self,
        messages: Sequence[Message],
        tools: Tools,
        add_generation_prompt: bool,
        special_tokens: Mapping[str, str],
        extra: Mapping[str, Any],
    ) -> str:
        name = "tool_use" if tools and "tool_use" in self._compiled else "default"
        wanted = {key: plain_data(value) for key, value in extra.items() if key != "continue_final_message"}
        checked = _checked(messages, self._sources[name])
        is_continued = bool(extra.get("continue_final_message"))
        if is_continued:
            _mark_end(checked[-1])
        values = {
            **special_tokens,
            "messages": checked,
            "tools": plain_data(list(tools)) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not is_continued,
            **wanted,
        }
        text = self._compiled[name](values)
        return _cut_at_mark(text) if is_continued else text


def load_chat_template(folder: Path) -> ChatTemplate:
    """The template of a model's folder. Raises TokenizerError where it cannot be read."""
    sources = _sources(folder)
    if not sources:
        return NoTemplate()
    if set(sources) == {"default"} and sources["default"] == SHIPPED_TEMPLATE:
        return ShippedTemplate()
    if "default" not in sources:
        first = next(iter(sources))
        sources = {**sources, "default": sources[first]}
    return JinjaTemplate(sources)


def _sources(folder: Path) -> dict[str, str]:
    """By name; a file of its own counts more than the tokenizer's configuration."""
    found: dict[str, str] = {}
    template = read_json(folder / "tokenizer_config.json").get("chat_template")
    if template is None:
        template = read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, str):
        found["default"] = template
    elif isinstance(template, list):
        try:
            found = {str(entry["name"]): str(entry["template"]) for entry in template}
        except (KeyError, TypeError):
            raise _no_template(folder) from None
    elif template is not None:
        raise _no_template(folder)
    file = folder / "chat_template.jinja"
    if file.is_file():
        found["default"] = file.read_text(encoding="utf-8")
    for further in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[further.stem] = further.read_text(encoding="utf-8")
    return found


def _no_template(folder: Path) -> TokenizerError:
    return TokenizerError(
        f"'chat_template' in {folder}/tokenizer_config.json must be a text, or a list of templates with their names"
    )


def _checked(messages: Sequence[Message], source: str) -> list[dict[str, Any]]:
    """The messages in the form, and with the roles, that the template knows: `developer` is what OpenAI's newer models
    call `system`, so a template that has no word of it is given that."""
    checked = plain_messages(messages, keeps_parts=_reads_parts(source))
    if "developer" not in source:
        for message in checked:
            if message["role"] == "developer":
                message["role"] = "system"
    return checked


def _reads_parts(source: str) -> bool:
    """Whether the template looks into contents that are lists."""
    return (
        re.search(r"\.type\b|\[['\"]type['\"]\]\s*==|content is (?:not )?(?:string|iterable|sequence)", source)
        is not None
    )


def _mark_end(message: dict[str, Any]) -> None:
    """Marks where the last message ends, so that what the template writes behind it can be cut off."""
    content = message.get("content")
    if isinstance(content, list) and content:
        content[-1]["text"] += _CONTINUATION
    elif isinstance(content, str):
        message["content"] = content + _CONTINUATION
    else:
        raise ChatError("'continue_final_message' is set, but the last message has no text to continue")


def _cut_at_mark(text: str) -> str:
    if _CONTINUATION not in text:
        raise ChatError(
            "'continue_final_message' is set, but the model's chat template does not write the last message"
        )
    return text[: text.rindex(_CONTINUATION)].rstrip()
