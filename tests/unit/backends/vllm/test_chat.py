"""A chat becomes tokens by the template of the model's own tokenizer, and by no other."""

from __future__ import annotations

import json
from typing import Any

import jinja2
import pytest
import tiny_tokenizers
import transformers

from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.backends.vllm.chat import read_chat

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{{ message['content'] + tone }}{% endfor %}{{ 1 + bonus if bonus else '' }}"
    "{{ 1 % parts if parts is defined else '' }}"
)
MESSAGES = [{"role": "user", "content": "one"}]


def tokens(messages: list[dict[str, Any]], **values: Any) -> list[int]:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizers.byte_level())
    tokenizer.chat_template = TEMPLATE
    chat = read_chat(json.dumps(messages), {"chat_template_kwargs": {"tone": "!", **values}})
    return chat.tokens_of(tokenizer)


def test_values_of_the_template_are_handed_to_it() -> None:
    tokenizer = tiny_tokenizers.byte_level()
    assert tokens(MESSAGES) == tokenizer.encode("one!", add_special_tokens=False).ids
    assert tokens(MESSAGES, bonus=2) == tokenizer.encode("one!3", add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chat_template", "{% for one in range(9) %}{% endfor %}"),
        ("tokenizer_kwargs", {"padding": "max_length"}),
        ("return_tensors", "np"),
        ("truncation", True),
        ("max_length", 1),
        ("tokenize", False),
    ],
)
def test_what_is_no_value_of_the_template_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"^'chat_template_kwargs' must not have '{name}'"):
        tokens(MESSAGES, **{name: value})


def test_messages_that_the_template_refuses_are_the_clients_mistake() -> None:
    with pytest.raises(InvalidRequestError, match=r"^the model's chat template refuses the messages: no system here$"):
        tokens([{"role": "system", "content": "one"}])


@pytest.mark.parametrize("values", [{"bonus": "x"}, {"parts": 0}, {"continue_final_message": True}])
def test_so_are_those_on_which_it_fails(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=r"^the model's chat template fails on the messages: \w+Error: "):
        tokens(MESSAGES, **values)


def test_a_template_that_cannot_be_read_is_no_mistake_of_the_client() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizers.byte_level())
    tokenizer.chat_template = "{% for message in messages %}"
    with pytest.raises(jinja2.TemplateSyntaxError):
        read_chat(json.dumps(MESSAGES), {}).tokens_of(tokenizer)
