"""OpenAI's client and models of other kinds: transformers, plain texts, embeddings; and the list of models."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import numpy as np
import openai
import pytest

WRITING = ["captions", "eyes", "rhymer", "scribe", "shout", "talker", "tiny", "tiny_chat"]
EMBEDDING = ["features", "sentences"]


def test_models_that_write_or_embed_are_listed(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == sorted(WRITING + EMBEDDING)
    assert {model.owned_by for model in models} == {"trireme"}
    assert all(time.time() - 600 < model.created <= time.time() for model in models)
    assert client.models.retrieve("tiny") == next(model for model in models if model.id == "tiny")


def test_chat_with_a_model_of_plain_texts_is_written_out(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="rhymer",
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Grüße,"}, {"type": "text", "text": "ἡ τριήρης"}]},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": "Go."},
        ],
    )
    expected = "System: Be kind.\nUser: Grüße,\nἡ τριήρης\nAssistant: Yes?\nUser: Go.\nAssistant:"
    assert answer.choices[0].message.content == expected
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None, "words and signs are counted where the model counts nothing"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3 + 4 + 2 + 2, 5 + 6 + 4 + 4 + 2)


def test_stop_texts_end_the_answers_of_models_that_know_none(client: openai.OpenAI) -> None:
    line = "one two three four"
    answer = client.completions.create(model="rhymer", prompt=line, stop=["three", "four"])
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("one two ", "stop")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 2)
    chunks = list(
        client.completions.create(
            model="rhymer", prompt=line, stop="o thr", stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "one tw"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2
    echoed = client.completions.create(model="rhymer", prompt=line, stop=["two"], echo=True, n=2)
    assert [choice.text for choice in echoed.choices] == [f"{line}one ", f"{line}one "]
    kept = client.completions.create(model="rhymer", prompt=line, stop=["fourth"])
    assert kept.choices[0].text == line
    with pytest.raises(openai.BadRequestError, match="more than 4096 characters together"):
        client.completions.create(model="rhymer", prompt=line, stop=["x" * 4000, "y" * 4000])


def test_plain_texts_are_streamed_as_they_come(client: openai.OpenAI, server: Any) -> None:
    text = "ἡ τριήρης"  # pieces of three bytes cut characters in two
    chunks = list(client.completions.create(model="rhymer", prompt=text, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert len(chunks) == (len(text.encode()) + 2) // 3 + 1
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    events = server.events("/v1/completions", {"model": "rhymer", "prompt": "ab", "stream": True})
    assert len(events) == 3
    assert events[-1] == b"[DONE]"


def test_options_are_parameters_of_plain_models(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="rhymer", prompt="parameters", max_tokens=5, temperature=0.5, stop=["\n"])
    assert json.loads(answer.choices[0].text) == {"max_tokens": 5, "temperature": 0.5, "stop": r'["\n"]'}


def test_several_texts_of_plain_models(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="rhymer", prompt=["a", "b"], n=2, echo=True)
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "aa"), (1, "aa"), (2, "bb"), (3, "bb")]


def test_options_are_inputs_where_a_model_has_them(client: openai.OpenAI) -> None:
    def shouted(**options: Any) -> str:
        return client.completions.create(model="shout", prompt="ho", **options).choices[0].text

    assert shouted(max_tokens=7) == "HO! 7"
    assert shouted() == "HO! 256"
    (only, end) = client.completions.create(model="shout", prompt="ho", max_tokens=1, stream=True)
    assert (only.choices[0].text, end.choices[0].finish_reason) == ("HO! 1", "stop")


def generate(server: Any, model: str, **members: Any) -> str:
    """What Triton's own endpoint says."""
    status, _, text = server.ask("POST", f"/v2/models/{model}/generate", members)
    assert status == 200, text
    found: str = json.loads(text)["text_output"]
    return found


def test_transformers_model_writes_what_its_own_endpoint_says(client: openai.OpenAI, server: Any) -> None:
    expected = generate(server, "tiny", text_input="Once upon", max_new_tokens=6, stream=False)
    answer = client.completions.create(model="tiny", prompt="Once upon", max_tokens=6)
    assert answer.choices[0].text == expected
    chunks = list(client.completions.create(model="tiny", prompt="Once upon", max_tokens=6, stream=True))
    assert len(chunks) > 2
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"
    echoed = client.completions.create(model="tiny", prompt="Once upon", max_tokens=6, echo=True)
    assert echoed.choices[0].text == "Once upon" + expected
    stop = expected.split()[-1]
    stopped = client.completions.create(model="tiny", prompt="Once upon", max_tokens=6, stop=[stop])
    assert stopped.choices[0].text == expected[: expected.index(stop)]


def test_seeds_of_choices_differ(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 1.0, "seed": 3}
    answer = client.completions.create(model="tiny", prompt="Once upon", n=2, **options)
    one, other = [choice.text for choice in answer.choices]
    assert one != other
    assert client.completions.create(model="tiny", prompt="Once upon", **options).choices[0].text == one


def test_transformers_model_with_a_chat_template_gets_the_messages(client: openai.OpenAI, server: Any) -> None:
    messages: Any = [{"role": "user", "content": "Tell me"}]
    answer = client.chat.completions.create(model="tiny_chat", messages=messages, max_tokens=6)
    expected = generate(server, "tiny_chat", messages=json.dumps(messages), max_new_tokens=6)
    assert answer.choices[0].message.content == expected
    assert generate(server, "tiny_chat", messages=messages, max_new_tokens=6) == expected
    chunks = list(client.chat.completions.create(model="tiny_chat", messages=messages, max_tokens=6, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == [expected, None]


def test_embeddings(client: openai.OpenAI, server: Any) -> None:
    texts = ["I am going home", "How can you be so sure"]
    vectors = [entry.embedding for entry in client.embeddings.create(model="sentences", input=texts).data]
    body = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [2, 1], "data": texts}]}
    expected = json.loads(server.ask("POST", "/v2/models/sentences/infer", body)[2])["outputs"][0]
    np.testing.assert_allclose(np.ravel(vectors), expected["data"], rtol=1e-4, atol=1e-5)
    single = client.embeddings.create(model="sentences", input=texts[1], encoding_format="float")
    np.testing.assert_allclose(single.data[0].embedding, vectors[1], rtol=1e-4, atol=1e-5)
    short = client.embeddings.create(model="sentences", input=texts[0], dimensions=4).data[0].embedding
    assert np.linalg.norm(short) == pytest.approx(1, abs=1e-5)
    assert client.embeddings.create(model="sentences", input=texts).usage.model_dump() == {
        "prompt_tokens": 10,
        "total_tokens": 10,
    }
    with pytest.raises(openai.BadRequestError, match="'dimensions' is 5000"):
        client.embeddings.create(model="sentences", input=texts[0], dimensions=5000)


def test_embeddings_as_text(server: Any) -> None:
    def embedding(encoding: str) -> Any:
        body = {"model": "features", "input": "I am going home", "encoding_format": encoding}
        status, _, text = server.ask("POST", "/v1/embeddings", body)
        assert status == 200, text
        return json.loads(text)["data"][0]["embedding"]

    numbers = embedding("float")
    assert np.frombuffer(base64.b64decode(embedding("base64")), "<f4").tolist() == pytest.approx(numbers, rel=1e-6)


def test_language_model_of_the_examples(client: openai.OpenAI, server: Any) -> None:
    messages: Any = [{"role": "user", "content": "Hello"}]
    options: dict[str, Any] = {"model": "scribe", "messages": messages, "max_tokens": 8, "temperature": 0}
    answer = client.chat.completions.create(**options, logprobs=True)
    assert answer.usage is not None
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == answer.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == answer.choices[0].finish_reason
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.content or ()) == answer.usage.completion_tokens
    assert generate(server, "scribe", messages=messages, max_tokens=8, temperature=0) == text
    body = {"model": "scribe", "messages": messages}
    tokens = json.loads(server.ask("POST", "/tokenize", body)[2])
    assert tokens["count"] == len(tokens["tokens"]) == answer.usage.prompt_tokens
    plain = json.loads(server.ask("POST", "/tokenize", {"model": "scribe", "prompt": "The sea"})[2])["tokens"]
    back = json.loads(server.ask("POST", "/detokenize", {"model": "scribe", "tokens": plain})[2])
    assert "The sea" in back["prompt"]
