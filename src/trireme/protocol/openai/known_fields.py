"""Which fields a request may have: those that are followed, those that change nothing, and what is said of others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from trireme.core.close_names import MAX_CHARS, closest
from trireme.core.errors import ErrorKind, PromptTooLongError, ServingError
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import Fields
from trireme.protocol.openai.options import OPTIONS, TOOL_OPTIONS

_TEXTS: Final = frozenset({"model", "stream", "stream_options", "logprobs", *OPTIONS})
CHAT: Final = _TEXTS | {"messages", "top_logprobs", *TOOL_OPTIONS}
COMPLETION: Final = _TEXTS | {"prompt", "echo", "suffix"}
EMBEDDING: Final = frozenset({"model", "input", "encoding_format", "dimensions"})
TOKENIZE: Final = frozenset(
    {"model", "prompt", "messages", "add_special_tokens", "add_generation_prompt", "return_token_strs"}
)
DETOKENIZE: Final = frozenset({"model", "tokens"})

_WITHOUT_EFFECT: Final = frozenset(
    {
        # OpenAI's: who asks, what is kept, what it costs, how hard to think.
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "prediction", "reasoning_effort", "verbosity", "moderation",
        # vLLM's: names, places and helpers of its own.
        "request_id", "cache_salt", "kv_transfer_params", "vllm_xargs", "mm_processor_kwargs",
        "guided_decoding_backend", "guided_whitespace_pattern", "spaces_between_special_tokens",
    }
)  # fmt: skip
"""Well-known ones that do not change the text, or are hints that a server may leave aside."""

_NOT_FOLLOWED: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "functions": (([],), "use 'tools'"),
    "function_call": (("none", "auto"), "use 'tool_choice'"),
    "modalities": ((["text"],), "answers are texts"),
    "audio": ((), "answers are texts"),
    "web_search_options": ((), ""),
    "allowed_token_ids": (([],), ""),
    "chat_template": ((), "the model's own is used"),
    "continue_final_message": ((False,), ""),
    "documents": (([],), ""),
    "detokenize": ((True,), ""),
    "echo": ((False,), "'echo' is a field of /v1/completions"),
    "include_reasoning": ((True,), ""),
    "logits_processors": (([],), ""),
    "return_token_ids": ((False,), ""),
    "return_tokens_as_token_ids": ((False,), ""),
    "structural_tag": ((), "use 'response_format'"),
    "truncate_prompt_tokens": ((), "shorten the prompt"),
    "add_special_tokens": ((), "a chat's template says them, and a prompt gets them"),
    "extra_body": ((), "it is an argument of OpenAI's library: put its members into the request itself"),
}
"""Well-known ones that would change the answer: the values with which they change nothing, and what to do instead."""

_FIELD: Final = re.compile(r"(?:in ensemble '[^']*', |(?!))*+'((\w++)[\w.\[\]]*+)'")
"""At the beginning of a refusal: the field. Nothing is tried twice: a model may begin with a long word of a client. The
branch that never matches is for Python before 3.11.5, as in `json_codec.runs`."""
_NEAR: Final = 0.8
_MOST_LOOKED_AT: Final = 32
"""Of the names that nobody knows: to compare one takes long."""


def unknown_fields(fields: Fields, known: frozenset[str]) -> list[str]:
    """Names that nobody knows, the first of many, and that are ignored; raises FieldError for one of them that looks
    like a known one, and for a field that would change the answer and cannot be followed."""
    names = fields.names
    if names <= known:
        return []
    unknown = [name for name in sorted(names - known - _WITHOUT_EFFECT) if not _is_harmless(name, fields, known)]
    looked_at = [name for name in unknown if len(name) <= MAX_CHARS][:_MOST_LOOKED_AT]
    for name in looked_at:
        close = _close_to(name, known)
        if close is not None:
            raise _unrecognized(name, f"Did you mean '{close}'?")
    return looked_at


def named_in(error: ServingError) -> ServingError:
    """The same refusal of a model, told as one of the field that it begins with, where it is one of this API."""
    found = _FIELD.match(error.message) if error.kind is ErrorKind.INVALID_ARGUMENT else None
    is_plain = not isinstance(error, FieldError | PromptTooLongError)
    return FieldError(found[1], error.message) if found and is_plain and found[2] in CHAT | COMPLETION else error


@lru_cache(1024)
def _close_to(name: str, known: frozenset[str]) -> str | None:
    """Remembered, because a client that sends such a name sends it with every request."""
    return closest(name, sorted(known), _NEAR)


def _is_harmless(name: str, fields: Fields, known: frozenset[str]) -> bool:
    """Whether there is nothing to say of it; False where it is not known."""
    value = fields.value(name)
    if value is None:
        return True
    if name in _NOT_FOLLOWED:
        neutral, advice = _NOT_FOLLOWED[name]
        if value in neutral or (name == "add_special_tokens" and value is ("prompt" in known)):
            return True
        hint = f": {advice}" if advice else ""
        raise FieldError(name, f"'{name}' is not supported{hint}.", "unsupported_parameter")
    elsewhere = [path for path, names in _PATHS.items() if name in names]
    if elsewhere:
        raise _unrecognized(name, f"It is a field of {elsewhere[0]}.")
    return False


_PATHS: Final = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION, "/v1/embeddings": EMBEDDING}


def _unrecognized(name: str, hint: str) -> FieldError:
    """In the words of OpenAI's own server."""
    return FieldError(name, f"Unrecognized request argument supplied: {name}. {hint}", "unknown_parameter")
