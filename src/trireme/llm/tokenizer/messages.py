"""Checks a conversation and brings it into the plain form that chat templates expect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.huggingface.message_text import joined_texts
from trireme.llm.tokenizer.port import ChatError, Message

_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


def plain_messages(messages: Sequence[Message], keeps_parts: bool) -> list[dict[str, Any]]:
    """Copies of plain dicts, lists and scalars. Contents that are lists of texts become one text, unless the template
    reads lists itself (`keeps_parts`).

    Raises ChatError where a message is not one.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise ChatError(f"'messages' must be a list of messages, found {type(messages).__name__}")
    if not messages:
        raise ChatError("'messages' is empty: there has to be at least one message")
    return [_message(message, index, keeps_parts) for index, message in enumerate(messages)]


def _message(message: Message, index: int, keeps_parts: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ChatError(f"message {index} must be an object with 'role' and 'content', found {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ChatError(f"message {index} has no 'role': a text such as 'system', 'user' or 'assistant'")
    plain: dict[str, Any] = plain_data(message)
    if message.get("content") is not None:
        plain["content"] = _content(message["content"], index, keeps_parts)
    elif not (role == "assistant" and (message.get("tool_calls") or _reasoning(message) is not None)):
        raise ChatError(f"message {index} of the role '{role}' has no 'content'")
    if message.get("tool_calls"):
        if not isinstance(message["tool_calls"], list | tuple):
            found = _name(message["tool_calls"])
            raise ChatError(f"'tool_calls' of message {index} must be a list, found {found}")
        plain["tool_calls"] = [_tool_call(call, index) for call in message["tool_calls"]]
    reasoning = _reasoning(plain)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _content(content: object, index: int, keeps_parts: bool) -> object:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise ChatError(f"the content of message {index} must be a text or a list of parts, found {_name(content)}")
    texts = []
    for number, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise ChatError(f"part {number} of message {index} must be an object with a 'type', found {_name(part)}")
        if part["type"] != "text" or not isinstance(part.get("text"), str):
            raise ChatError(
                f"part {number} of message {index} has the type '{part['type']}': the model takes parts of the type "
                "'text' with a 'text'"
            )
        texts.append(part["text"])
    return [{"type": "text", "text": text} for text in texts] if keeps_parts else joined_texts(texts)


def _tool_call(call: object, index: int) -> Any:
    """Templates write arguments as JSON; clients send them as a text that is JSON already."""
    if not isinstance(call, Mapping):
        raise ChatError(f"a tool call of message {index} must be an object, found {_name(call)}")
    plain = plain_data(call)
    function = plain.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError as error:  # no JSON, or a number with more digits than are read
            raise ChatError(
                f"the arguments of tool call '{function.get('name')}' in message {index} are no JSON: {error}"
            ) from None
    return plain


def plain_data(value: Any) -> Any:
    """The value rebuilt of JSON's types: a template must not reach the methods of anything else."""
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def _reasoning(message: Message) -> object:
    return next((message[name] for name in _REASONING_NAMES if message.get(name) is not None), None)


def _name(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
