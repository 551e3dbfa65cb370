"""Fields beyond those that are followed, as OpenAI's own client and the libraries around it send them."""

from __future__ import annotations

from typing import Any

import openai
import pytest

HELLO: Any = [{"role": "user", "content": "hello"}]


def test_fields_that_libraries_add_change_nothing(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="talker", messages=HELLO)
    dressed = client.chat.completions.create(
        model="talker",
        messages=HELLO,
        user="somebody",
        metadata={"run": "1"},
        store=False,
        service_tier="auto",
        safety_identifier="s",
        prompt_cache_key="k",
        reasoning_effort="low",
        verbosity="low",
        modalities=["text"],
        extra_body={"request_id": "r", "cache_salt": "c", "mm_processor_kwargs": {}, "functions": None},
    )
    assert dressed.choices[0].message.content == plain.choices[0].message.content


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"temprature": 0.1}, "Unrecognized request argument supplied: temprature. Did you mean 'temperature'?"),
        ({"max_new_tokens": 3}, "Did you mean 'max_tokens'?"),
        ({"input": "hello"}, "It is a field of /v1/embeddings."),
        ({"functions": [{"name": "f"}]}, "'functions' is not supported: use 'tools'."),
        ({"extra_body": {"top_k": 3}}, "put its members into the request itself"),
    ],
)
def test_misspelt_field_is_refused_with_what_was_meant(client: openai.OpenAI, extra: Any, told: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="talker", messages=HELLO, extra_body=extra)
    assert told in caught.value.message
    assert caught.value.param == next(iter(extra))


def test_field_of_nobody_is_ignored_and_logged_once(server: Any, client: openai.OpenAI) -> None:
    for _ in range(2):
        answer = client.completions.create(model="talker", prompt="hello", extra_body={"mirostat": 2})
        assert answer.choices[0].text
    assert server.log.count("clients of /v1 send the field 'mirostat', which is not known and ignored") == 1


def test_embedding_has_fields_of_its_own(client: openai.OpenAI) -> None:
    assert client.embeddings.create(model="sentences", input="hello", user="u", extra_body={"input_type": "query"}).data
    with pytest.raises(openai.BadRequestError, match="Did you mean 'dimensions'"):
        client.embeddings.create(model="sentences", input="hello", extra_body={"dimension": 3})
