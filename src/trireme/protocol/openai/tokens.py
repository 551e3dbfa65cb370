"""The requests that ask for a model's tokens alone: `/tokenize` and `/detokenize`, in the form that vLLM gave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import MAX_INTEGER, Fields, is_token_ids
from trireme.protocol.openai.requests import Message, read_messages


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A text or a chat whose tokens are asked for."""

    model: str
    prompt: str | None
    messages: list[Message] | None
    options: dict[str, bool]
    wants_texts: bool = False
    """Whether the text of each token is asked for."""


@dataclass(frozen=True, slots=True)
class DetokenizeRequest:
    """Tokens whose text is asked for."""

    model: str
    tokens: list[int]


def read_tokenize(fields: Fields) -> TokenizeRequest:
    """Checks the fields; raises FieldError."""
    model = fields.required_name("model")
    prompt = fields.text("prompt")
    messages = read_messages(fields) if prompt is None and fields.has("messages") else None
    if prompt is None and messages is None:
        raise FieldError("prompt", "'prompt' or 'messages' is required.", "missing_required_parameter")
    flags = {name: fields.flag(name) for name in ("add_special_tokens", "add_generation_prompt")}
    options = {name: flag for name, flag in flags.items() if flag is not None}
    return TokenizeRequest(model, prompt, messages, options, fields.flag("return_token_strs") or False)


def read_detokenize(fields: Fields) -> DetokenizeRequest:
    """Checks the fields; raises FieldError."""
    model = fields.required_name("model")
    tokens = fields.array("tokens", MAX_INTEGER)
    if tokens is None:
        raise fields.missing("tokens")
    if not is_token_ids(tokens):
        raise FieldError("tokens", "'tokens' has to be an array of token ids, which are 0 or more.", "invalid_type")
    return DetokenizeRequest(model, tokens)


def encode_tokens(tokens: list[int], max_length: int | None, texts: list[str] | None) -> bytes:
    """The answer of `/tokenize`; how long a prompt with its answer may be is left out where it is not known."""
    found: dict[str, Any] = {"count": len(tokens), "tokens": tokens, "token_strs": texts}
    if max_length is not None:
        found["max_model_len"] = max_length
    return orjson.dumps(found)


def encode_prompt(text: str) -> bytes:
    """The answer of `/detokenize`."""
    return orjson.dumps({"prompt": text})
