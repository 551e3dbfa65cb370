"""Requests to complete a text and to go on with a chat, as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import MAX_INTEGER, Fields, is_token_ids, wrong_type
from trireme.protocol.openai.options import (
    MAX_TOP_LOGPROBS,
    Options,
    check_logprobs,
    read_options,
    read_tools,
)

MAX_PROMPTS: Final = 1024
MAX_MESSAGES: Final = 16384
MAX_PARTS: Final = 4096
ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_REFUSAL: Final = "refusal"
_PROMPT: Final = "a string, token ids, or an array of either"

Prompt = str | list[int]
"""A text, or the ids of its tokens."""
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """`POST /v1/completions`."""

    model: str
    prompts: list[Prompt]
    options: Options
    choice_count: int
    """Of each prompt."""
    is_stream: bool
    includes_usage: bool
    has_echo: bool
    adapter: str = ""
    """Of the model, to write with; "": none."""

    @property
    def asked_model(self) -> str:
        """What the client calls model and adapter."""
        return asked_model(self.model, self.adapter)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`POST /v1/chat/completions`."""

    model: str
    messages: list[Message]
    options: Options
    choice_count: int
    is_stream: bool
    includes_usage: bool
    adapter: str = ""
    """Of the model, to write with; "": none."""

    @property
    def asked_model(self) -> str:
        """What the client calls model and adapter."""
        return asked_model(self.model, self.adapter)


def asked_model(model: str, adapter: str) -> str:
    """The one name of both."""
    return f"{model}:{adapter}" if adapter else model


def read_completion(fields: Fields) -> CompletionRequest:
    """Checks the fields of a completion; raises FieldError."""
    model = fields.required_name("model")
    has_echo = fields.flag("echo") is True
    options = read_options(fields, least_tokens=0 if has_echo else 1)
    count = options.pop("n", 1)
    if fields.text("suffix"):
        raise FieldError("suffix", "'suffix' is not supported.", "unsupported_parameter")
    logprobs = fields.integer("logprobs", 0, MAX_TOP_LOGPROBS)
    if logprobs is not None:
        options["logprobs"] = logprobs
    prompts = read_prompts("prompt", fields, MAX_PROMPTS)
    if len(prompts) * count > MAX_PROMPTS:
        raise FieldError("n", f"'prompt' and 'n' ask for {len(prompts) * count} texts; at most {MAX_PROMPTS} can be.")
    if len(prompts) * count > 1:
        check_logprobs(options, len(prompts) * count)
    return CompletionRequest(model, prompts, options, count, *_read_stream(fields), has_echo)


def read_chat(fields: Fields) -> ChatRequest:
    """Checks the fields of a chat; raises FieldError."""
    model = fields.required_name("model")
    options = read_options(fields)
    count = options.pop("n", 1)
    read_tools(options, fields)
    top = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if fields.flag("logprobs"):
        options["logprobs"] = True
        options["top_logprobs"] = top or 0
    elif top:
        raise FieldError("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    if count > 1:
        check_logprobs(options, count)
    return ChatRequest(model, read_messages(fields), options, count, *_read_stream(fields))


def read_messages(fields: Fields) -> list[Message]:
    """The messages of a chat, each of a known role and with content."""
    messages = fields.array("messages", MAX_MESSAGES)
    if messages is None:
        raise fields.missing("messages")
    if not messages:
        raise FieldError("messages", "'messages' is empty; a chat needs at least one message.", "empty_array")
    for position, message in enumerate(messages):
        _check_message(f"messages[{position}]", message)
    return list(map(_as_said, messages))


def text_of(message: Message) -> str:
    """The text of a message, a line for each part that is one; what is no text is left out."""
    content = message.get("content")
    if not isinstance(content, list):
        return content or ""
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def other_parts(message: Message) -> Iterator[tuple[int, dict[str, Any]]]:
    """The parts of a message that are no texts, each with its position."""
    content = message.get("content")
    for position, part in enumerate(content if isinstance(content, list) else ()):
        if part["type"] != "text":
            yield position, part


def _as_said(message: Message) -> Message:
    """As a message that was answered comes back when a client writes down all of its members: chat templates take one
    that is there for one that says something. What was refused is what was said, in a part as well as in a member."""
    content = message.get("content")
    if content is None and type(message.get("refusal")) is str:
        message = {**message, "content": message["refusal"]}
    elif message["role"] == "assistant" and type(content) is list:
        message = {**message, "content": list(map(_said_part, content))}
    if None not in message.values():
        return message
    return {name: value for name, value in message.items() if value is not None or name == "content"}


def _said_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": part["refusal"]} if part["type"] == _REFUSAL else part


def _check_message(where: str, message: Any) -> None:
    if not isinstance(message, dict):
        raise wrong_type(where, "an object", message)
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise FieldError(f"{where}.role", f"'{where}.role' has to be one of {', '.join(ROLES)}.", "invalid_value")
    if type(content) is list:
        if len(content) > MAX_PARTS:
            raise FieldError(f"{where}.content", f"'{where}.content' has more than {MAX_PARTS} parts.")
        for position, part in enumerate(content):
            _check_part(f"{where}.content[{position}]", part, role)
    elif content is None:
        if role != "assistant":
            raise FieldError(f"{where}.content", f"'{where}.content' is required.", "missing_required_parameter")
    elif type(content) is not str:
        raise wrong_type(f"{where}.content", "a string or an array", content)
    if role == "assistant":
        _check_calls(f"{where}.tool_calls", message.get("tool_calls"))


def _check_calls(where: str, calls: Any) -> None:
    if calls is not None and type(calls) is not list:
        raise wrong_type(where, "an array", calls)
    for position, call in enumerate(calls or ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or type(function.get("name")) is not str:
            name = f"{where}[{position}].function.name"
            raise FieldError(name, f"'{name}' is required.", "missing_required_parameter")


def _check_part(where: str, part: Any, role: str) -> None:
    if not isinstance(part, dict) or type(part.get("type")) is not str:
        raise FieldError(where, f"'{where}' has to be an object with a 'type'.", "invalid_type")
    kind = part["type"]
    if (kind == "text" or (kind == _REFUSAL and role == "assistant")) and type(part.get(kind)) is not str:
        raise FieldError(f"{where}.{kind}", f"'{where}.{kind}' has to be a string.", "invalid_type")


def read_prompts(name: str, fields: Fields, max_count: int) -> list[Prompt]:
    """A text, token ids, or an array of either, in the field of that name."""
    value = fields.value(name)
    if value is None or value == []:
        raise fields.missing(name)
    if type(value) is str:
        return [value]
    if type(value) is not list:
        raise wrong_type(name, _PROMPT, value)
    prompts: list[Prompt] = [value] if type(value[0]) is int else value
    if len(prompts) > max_count:
        raise FieldError(name, f"'{name}' has {len(prompts)} entries; at most {max_count} are allowed.")
    for prompt in prompts:
        if type(prompt) is not str and not (prompt and is_token_ids(prompt)):
            _refuse_ids(name, prompt)
            raise wrong_type(name, _PROMPT, prompt)
    return prompts


def _refuse_ids(name: str, prompt: Any) -> None:
    """Where it is a list of whole numbers, what is wrong is one of them."""
    if type(prompt) is list and prompt and all(type(entry) is int for entry in prompt):
        wrong = next(entry for entry in prompt if not 0 <= entry <= MAX_INTEGER)
        raise FieldError(name, f"'{name}' has {wrong}, which is no token id: those are 0 or more.", "invalid_value")


def _read_stream(fields: Fields) -> tuple[bool, bool]:
    """Whether the answer is a stream, and whether it ends with the usage."""
    is_stream = fields.flag("stream") is True
    stream_options = fields.object("stream_options")
    if stream_options is not None and not is_stream:
        raise FieldError("stream_options", "'stream_options' needs 'stream' to be true.")
    includes_usage = Fields(stream_options).flag("include_usage") if stream_options is not None else None
    return is_stream, includes_usage is True
