"""Fields that a request has beside those that are followed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trireme.core.errors import InternalError, InvalidArgumentError, PromptTooLongError
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import Fields
from trireme.protocol.openai.known_fields import (
    CHAT,
    COMPLETION,
    DETOKENIZE,
    EMBEDDING,
    TOKENIZE,
    named_in,
    unknown_fields,
)
from trireme.protocol.openai.requests import read_chat

UNKNOWN = "Unrecognized request argument supplied: "
MESSAGES = [{"role": "user", "content": "Hi"}]


class _Watched(dict[str, Any]):
    """Notes which members are asked for."""

    def __init__(self, members: dict[str, Any]) -> None:
        super().__init__(members)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def test_all_that_is_read_of_a_chat_is_known() -> None:
    members = _Watched({"model": "m", "messages": MESSAGES})
    read_chat(Fields(members))
    assert members.asked <= CHAT
    assert CHAT - members.asked == set()


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("'top_p' must be above 0", "top_p"),
        ("'tools[0].function.name' is 'a b', which", "tools[0].function.name"),
        ("in ensemble 'all', 'max_tokens' ('request_output_len' of 'tensorrt_llm') is 9", "max_tokens"),
        ("in ensemble 'all', in ensemble 'writing', 'top_p' must be above 0", "top_p"),
        ("'random_seed' is 3", None),
        ("the option 'top_p' is wrong", None),
    ],
)
def test_a_models_refusal_that_begins_with_a_field_is_told_as_one_of_it(message: str, param: str | None) -> None:
    told = named_in(InvalidArgumentError(message))
    assert (told.message, getattr(told, "param", None)) == (message, param)
    for error in (InternalError(message), PromptTooLongError(message), FieldError("n", message)):
        assert named_in(error) is error


def test_a_refusal_that_begins_with_a_long_word_is_looked_at_in_no_time() -> None:
    error = InvalidArgumentError(f"'{'a' * 20_000} b' is not understood")
    began_s = time.process_time()
    assert named_in(error) is error
    assert time.process_time() - began_s < 1, "the same letters were tried again and again"


@pytest.mark.parametrize("known", [CHAT, COMPLETION, EMBEDDING])
def test_well_known_fields_without_effect_are_taken(known: frozenset[str]) -> None:
    given = {"user": "u", "metadata": {}, "store": True, "service_tier": "auto", "reasoning_effort": "low"}
    assert unknown_fields(Fields({**given, "request_id": "x", "cache_salt": "y", "functions": None}), known) == []


def test_field_that_nobody_knows_is_told_and_ignored() -> None:
    assert unknown_fields(Fields({"model": "m", "mirostat": 2, "keep_alive": "5m"}), CHAT) == ["keep_alive", "mirostat"]


@pytest.mark.parametrize(
    ("members", "known", "message"),
    [
        ({"temprature": 1}, CHAT, f"{UNKNOWN}temprature. Did you mean 'temperature'?"),
        ({"max_new_tokens": 1}, CHAT, f"{UNKNOWN}max_new_tokens. Did you mean 'max_tokens'?"),
        ({"tools": [1]}, COMPLETION, f"{UNKNOWN}tools. It is a field of /v1/chat/completions."),
        ({"prompt": "x"}, CHAT, f"{UNKNOWN}prompt. It is a field of /v1/completions."),
        ({"dimension": 3}, EMBEDDING, f"{UNKNOWN}dimension. Did you mean 'dimensions'?"),
        ({"functions": [{}]}, CHAT, "'functions' is not supported: use 'tools'."),
        ({"modalities": ["text", "audio"]}, CHAT, "'modalities' is not supported: answers are texts."),
        ({"echo": True}, CHAT, "'echo' is not supported: 'echo' is a field of /v1/completions."),
        ({"continue_final_message": True}, CHAT, "'continue_final_message' is not supported."),
        ({"add_special_tokens": False}, COMPLETION, "'add_special_tokens' is not supported"),
        ({"tokn": [1]}, DETOKENIZE, f"{UNKNOWN}tokn. Did you mean 'tokens'?"),
    ],
)  # fmt: skip
def test_field_that_would_change_the_answer_is_refused(
    members: dict[str, Any], known: frozenset[str], message: str
) -> None:
    with pytest.raises(FieldError) as caught:
        unknown_fields(Fields({"model": "m", **members}), known)
    assert caught.value.message.startswith(message)
    assert caught.value.param == next(iter(members))


@pytest.mark.parametrize(
    ("members", "known"),
    [
        ({"modalities": ["text"]}, CHAT),
        ({"functions": [], "function_call": "auto"}, CHAT),
        ({"echo": False, "include_reasoning": True, "add_special_tokens": False}, CHAT),
        ({"add_special_tokens": True}, COMPLETION),
        ({"add_special_tokens": False}, TOKENIZE),
        ({"temprature": None}, CHAT),
    ],
)
def test_value_that_changes_nothing_is_taken(members: dict[str, Any], known: frozenset[str]) -> None:
    assert unknown_fields(Fields({"model": "m", **members}), known) == []


def test_structured_outputs_say_what_the_guides_say() -> None:
    def options(value: object) -> dict[str, Any]:
        return read_chat(Fields({"model": "m", "messages": MESSAGES, "structured_outputs": value})).options

    assert options({"choice": ["yes", "no"]}) == {"guided_choice": ["yes", "no"]}
    assert options({"json": {"type": "object"}, "regex": None}) == {"guided_json": {"type": "object"}}
    with pytest.raises(FieldError, match=r"'structured_outputs\.whitespace_pattern' is not supported"):
        options({"whitespace_pattern": " "})
    with pytest.raises(FieldError, match="guided_choice"):
        options({"choice": "yes"})


def test_of_very_many_unknown_fields_some_are_looked_at() -> None:
    names = {f"x{number:05}": 1 for number in range(5000)}
    assert unknown_fields(Fields({**names, "y" * 1_000_000: 1}), CHAT) == sorted(names)[:32]
    assert unknown_fields(Fields({"y" * 1_000_000: 1}), CHAT) == []
    with pytest.raises(FieldError, match="is not supported"):
        unknown_fields(Fields({**names, "web_search_options": {"a": 1}}), CHAT)
