"""OpenAI's client and a model with the tensors of language models: streams, choices, tools, usage, errors."""

from __future__ import annotations

import json
import socket
from typing import Any

import openai
import pytest
from waiting import until

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_chat(say: Any) -> None:
    answer = say("one two")
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", "talker")
    assert len(answer.choices) == 1
    assert answer.choices[0].message.content == "one0 two0 "
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (2, 2, 4)
    assert answer.usage.prompt_tokens_details.cached_tokens == 1


def test_streamed_chat(say: Any) -> None:
    chunks = list(say("one two three", stream=True, stream_options={"include_usage": True}))
    assert len(chunks) == 4
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].delta.content for chunk in chunks[:3]] == ["one0 ", "two0 ", "three0 "]
    assert [chunk.choices[0].delta.role for chunk in chunks[:3]] == ["assistant", None, None]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:3]] == [None, None, "stop"]
    assert chunks[3].choices == []
    assert chunks[3].usage.completion_tokens == 3


def test_bytes_of_a_stream(server: Any) -> None:
    body = {"model": "talker", "messages": [{"role": "user", "content": "one two"}], "stream": True}
    events = server.events("/v1/chat/completions", body)
    assert len(events) == 3
    assert events[-1] == b"[DONE]"
    assert json.loads(events[1])["choices"][0] == {
        "index": 0,
        "delta": {"content": "two0 "},
        "logprobs": None,
        "finish_reason": "stop",
    }


def test_several_choices(say: Any) -> None:
    answer = say("one two", n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.message.content for choice in answer.choices] == ["one0 two0 ", "one1 two1 ", "one2 two2 "]
    assert answer.usage.completion_tokens == 6
    texts = {0: "", 1: ""}
    finished = []
    for chunk in say("one two", n=2, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
        finished += [choice.index] if choice.finish_reason else []
    assert texts == {0: "one0 two0 ", 1: "one1 two1 "}
    assert finished == [0, 1]


def test_options_reach_the_model(say: Any) -> None:
    answer = say(
        "options",
        temperature=0.5,
        seed=7,
        max_completion_tokens=9,
        stop=["##", "%%"],
        logit_bias={"5": -1},
        response_format={"type": "json_object"},
        user="somebody",
        extra_body={"top_k": 4, "guided_choice": ["a"], "chat_template_kwargs": {"a": 1}, "not_known": 1},
    )
    assert json.loads(answer.choices[0].message.content) == {
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 9,
        "stop": ["##", "%%"],
        "logit_bias": {"5": -1},
        "response_format": {"type": "json_object"},
        "top_k": 4,
        "guided_choice": ["a"],
        "chat_template_kwargs": {"a": 1},
    }


def test_length_and_stop(say: Any) -> None:
    cut = say("one two three", max_tokens=2).choices[0]
    assert (cut.message.content, cut.finish_reason) == ("one0 two0 ", "length")
    stopped = say("one two three", stop="two").choices[0]
    assert (stopped.message.content, stopped.finish_reason) == ("one0 ", "stop")


def test_logprobs(say: Any) -> None:
    answer = say("one two", logprobs=True, top_logprobs=1)
    entries = answer.choices[0].logprobs.content
    assert [(entry.token, entry.logprob) for entry in entries] == [("one0 ", -0.5), ("two0 ", -0.5)]
    assert entries[0].top_logprobs[0].token == "other"
    chunks = list(say("one two", logprobs=True, stream=True))
    assert [chunk.choices[0].logprobs.content[0].token for chunk in chunks] == ["one0 ", "two0 "]
    assert say("one two").choices[0].logprobs is None


def test_tools(say: Any) -> None:
    choice = say("what weather", tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == (
        "call_1",
        "weather",
        {"city": "Athens"},
    )


def test_streamed_tools(say: Any) -> None:
    chunks = list(say("what weather", tools=[TOOL], stream=True))
    calls = [chunk.choices[0].delta.tool_calls[0] for chunk in chunks]
    assert calls[0].function.name == "weather"
    assert "".join(call.function.arguments for call in calls) == '{"city": "Athens"}'
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "tool_calls"]


def test_completions_of_every_form_of_prompt(client: openai.OpenAI) -> None:
    def texts(prompt: Any, **options: Any) -> list[str]:
        answer = client.completions.create(model="talker", prompt=prompt, **options)
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
        return [choice.text for choice in answer.choices]

    assert texts("one two") == ["one0 two0 "]
    assert texts(["one", "two"]) == ["one0 ", "two0 "]
    assert texts([5, 6]) == ["50 60 "]
    assert texts([[5], [6]]) == ["50 ", "60 "]
    assert texts(["one", "two"], n=2) == ["one0 ", "one1 ", "two0 ", "two1 "]


def test_usage_of_several_prompts_is_added_up(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="talker", prompt=["one two", "three"])
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 3)


def test_streamed_completion(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="talker", prompt=["one two", "three"], stream=True, logprobs=1, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert len(chunks) == 4
    texts = {0: "", 1: ""}
    for chunk in chunks[:3]:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "one0 two0 ", 1: "three0 "}
    second = next(chunk.choices[0] for chunk in chunks[:3] if chunk.choices[0].text == "two0 ")
    assert second.logprobs is not None
    assert (second.logprobs.tokens, second.logprobs.text_offset) == (["two0 "], [5])
    assert chunks[3].choices == []
    assert chunks[3].usage is not None
    assert chunks[3].usage.total_tokens == 6


def test_error_of_the_model_before_its_first_piece_has_a_status(say: Any) -> None:
    for is_stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="'temperature' is too hot"):
            say("fail", stream=is_stream)


def test_error_of_one_prompt_ends_a_stream(server: Any) -> None:
    body = {"model": "talker", "prompt": ["forever", "fail"], "stream": True}
    status, _, text = server.ask("POST", "/v1/completions", body)
    if status == 200:  # the other prompt was quicker
        assert b'"error":{"message":' in text
        assert text.endswith(b"data: [DONE]\n\n")
    else:
        assert status == 400
        assert json.loads(text)["error"]["type"] == "invalid_request_error"


def test_client_that_leaves_ends_the_work(server: Any, say: Any) -> None:
    stream = say("forever alone", stream=True)
    assert next(iter(stream)).choices[0].delta.content == "on "
    stream.close()
    until(lambda: say("cancelled forever alone").choices[0].message.content == "1")


def test_client_that_leaves_ends_the_work_of_all_prompts(server: Any, say: Any) -> None:
    host, port = server.address.split(":")
    body = json.dumps({"model": "talker", "prompt": ["forever together"] * 3, "stream": True}).encode()
    with socket.create_connection((host, int(port))) as plain:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        plain.sendall(head.encode() + body)
        received = b""
        while not all(b'"index":%d' % index in received for index in range(3)):  # all are running
            received += plain.recv(4096)
    until(lambda: say("cancelled forever together").choices[0].message.content == "3")


def test_tokens(server: Any) -> None:
    status, _, text = server.ask("POST", "/tokenize", {"model": "talker", "prompt": "a bb ccc"})
    assert (status, json.loads(text)) == (200, {"count": 3, "tokens": [1, 2, 3], "token_strs": None})
    messages = [{"role": "user", "content": "dddd"}]
    assert json.loads(server.ask("POST", "/tokenize", {"model": "talker", "messages": messages})[2])["tokens"] == [4]
    status, _, text = server.ask("POST", "/detokenize", {"model": "talker", "tokens": [1, 3]})
    assert (status, json.loads(text)) == (200, {"prompt": "x xxx"})
    status, _, text = server.ask("POST", "/tokenize", {"model": "shout", "prompt": "a"})
    assert status == 400
    assert json.loads(text)["error"]["param"] == "model"


def test_echoed_prompt_has_its_probabilities(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scribe", prompt="Once upon a time", echo=True, logprobs=2, max_tokens=2)
    choice = answer.choices[0]
    assert choice.text.startswith("Once upon a time")
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
    assert answer.usage is not None
    assert len(choice.logprobs.tokens or ()) == answer.usage.total_tokens
    for token, offset in zip(choice.logprobs.tokens or (), choice.logprobs.text_offset or (), strict=True):
        assert choice.text[offset:].startswith(token) or token.startswith("<")


def test_prompt_alone_has_its_probabilities(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="scribe", prompt="Once upon a time", echo=True, logprobs=0, max_tokens=0, stream=False
    )
    assert answer.choices[0].text == "Once upon a time"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens or ()) == answer.usage.prompt_tokens


def test_probabilities_of_the_prompt_in_the_form_of_vllm(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="scribe", prompt="Once upon a time", max_tokens=1, extra_body={"prompt_logprobs": 1}
    )
    entries: Any = answer.choices[0].model_extra["prompt_logprobs"]  # type: ignore[index]
    assert entries[0] is None
    assert answer.usage is not None
    assert len(entries) == answer.usage.prompt_tokens
    assert all(value["logprob"] <= 0 for entry in entries[1:] for value in entry.values())


def test_beam_search(client: openai.OpenAI) -> None:
    wanted = {"use_beam_search": True, "best_of": 4}
    answer = client.completions.create(model="scribe", prompt="Once upon", n=2, max_tokens=8, extra_body=wanted)
    first, second = (choice.text for choice in answer.choices)
    assert first != second
    pieces = list(
        client.completions.create(model="scribe", prompt="Once upon", n=2, max_tokens=8, extra_body=wanted, stream=True)
    )
    assert ["".join(one.choices[0].text for one in pieces if one.choices[0].index == index) for index in (0, 1)] == [
        first,
        second,
    ]
    with pytest.raises(openai.BadRequestError, match="'best_of' above 'n' is not supported without"):
        client.completions.create(model="scribe", prompt="Once upon", best_of=2)


def test_beams_are_for_language_models_alone(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'num_beams' is not supported by this model"):
        client.completions.create(model="shout", prompt="x", extra_body={"num_beams": 2})
