"""Requests of OpenAI's API: what is read, what is refused and with which words, what is ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trireme.protocol.openai.embeddings import read_embedding
from trireme.protocol.openai.errors import FieldError, TooLargeError
from trireme.protocol.openai.fields import Fields, read_body
from trireme.protocol.openai.requests import read_chat, read_completion, text_of
from trireme.protocol.openai.tokens import read_detokenize, read_tokenize

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def chat(**members: Any) -> Any:
    return read_chat(Fields({"model": "m", "messages": HELLO, **members}))


def completion(**members: Any) -> Any:
    return read_completion(Fields({"model": "m", "prompt": "once", **members}))


def test_chat_with_nothing_but_messages() -> None:
    request = chat()
    assert (request.model, request.messages, request.options) == ("m", HELLO, {})
    assert (request.choice_count, request.is_stream, request.includes_usage) == (1, False, False)


def test_chat_with_every_option() -> None:
    given = {
        "temperature": 0.5,
        "top_p": 1,
        "top_k": -1,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": -2,
        "frequency_penalty": 2.0,
        "seed": -7,
        "min_tokens": 2,
        "ignore_eos": True,
        "logit_bias": {"50256": -100},
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "guided_regex": "a+",
        "guided_choice": ["a", "b"],
        "guided_json": {"type": "object"},
        "guided_grammar": "root ::= 'a'",
        "chat_template_kwargs": {"enable_thinking": False},
        "stop_token_ids": [1, 2],
        "bad_words": ["no"],
    }
    request = chat(
        **given, n=3, stream=True, stream_options={"include_usage": True}, stop="end", max_completion_tokens=9,
        logprobs=True, top_logprobs=4, user="somebody", metadata={"a": "b"},
    )  # fmt: skip
    more = {"stop": ["end"], "max_tokens": 9, "logprobs": True, "top_logprobs": 4}
    assert request.options == {**given, **more}
    assert (request.choice_count, request.is_stream, request.includes_usage) == (3, True, True)


def test_no_top_p_is_the_likeliest_token() -> None:
    assert chat(top_p=0, temperature=0.7).options == {"temperature": 0}
    assert completion(top_p=0.0).options == {"temperature": 0}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_allowed_tools_are_those_that_the_model_hears_of() -> None:
    other = {"type": "function", "function": {"name": "time"}}
    for mode in ("auto", "required"):
        request = chat(tools=[TOOL, other], tool_choice=allowed(mode, "time"))
        assert request.options == {"tools": [other], "tool_choice": mode}
    for choice in (allowed("any", "time"), allowed("auto"), allowed("auto", "sail"), allowed("auto", "time", "sail")):
        with pytest.raises(FieldError, match=r"^'tool_choice\.allowed_tools\."):
            chat(tools=[TOOL, other], tool_choice=choice)


def test_newer_name_of_max_tokens_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).options == {"max_tokens": 7}


def test_unknown_fields_and_nulls_are_ignored() -> None:
    assert chat(service_tier="auto", store=False, temperature=None, stop=None, tools=[]).options == {}


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_response_format_is_passed_on(kind: str) -> None:
    wanted = {"type": kind, "json_schema": {"name": "x", "schema": {"type": "object"}}}
    assert chat(response_format=wanted).options == {"response_format": wanted}


def test_format_of_texts_is_no_constraint() -> None:
    assert chat(response_format={"type": "text"}).options == {}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": HELLO * 16385}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 1.0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"stop": 3}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": ["x" * 4097]}, "stop"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": 3}, "tool_choice"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_json": 3}, "guided_json"),
        ({"stop_token_ids": ["x"]}, "stop_token_ids"),
        ({"bad_words": [1]}, "bad_words"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"num_beams": 0}, "num_beams"),
        ({"early_stopping": "soon"}, "early_stopping"),
        ({"logprobs": True, "top_logprobs": 20, "n": 100, "max_tokens": 10_000}, "logprobs"),
        ({"guided_regex": "x" * 300_000}, "guided_regex"),
        ({"guided_json": {"const": "x" * 300_000}}, "guided_json"),
        ({"guided_regex": "x" * 200_000, "guided_choice": ["x" * 100_000]}, "guided_choice"),
        ({"response_format": {"type": "json_object", "x": "x" * 300_000}}, "response_format"),
        ({"bad_words": ["x" * 300_000]}, "bad_words"),
        ({"bad_words": ["\udc80" * 300_000]}, "bad_words"),
        ({"chat_template_kwargs": {"x": "x" * 300_000}}, "chat_template_kwargs"),
        ({"tools": [TOOL] * 257}, "tools"),
        ({"tools": [{"function": {"name": "x" * 1_100_000}}]}, "tools"),
    ],
)
def test_refused_chat_names_the_field(members: dict[str, Any], param: str) -> None:
    with pytest.raises(FieldError) as refused:
        chat(**members)
    assert refused.value.param == param
    assert param in refused.value.message or param == "messages[0]"


@pytest.mark.parametrize(("stop", "kind"), [(3, "a number"), ({"a": 1}, "an object"), ([3], "a number")])
def test_a_stop_of_another_type_is_told_both_that_it_may_have(stop: Any, kind: str) -> None:
    with pytest.raises(FieldError) as refused:
        chat(stop=stop)
    assert refused.value.message == f"'stop' has to be a string or an array of strings, not {kind}."


def test_assistant_may_have_called_tools_without_saying_anything() -> None:
    messages = [{"role": "assistant", "content": None, "tool_calls": []}]
    assert chat(messages=messages).messages == messages


def test_answers_come_back_without_the_members_that_say_nothing() -> None:
    nothing = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
    calls = [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    said = {"role": "assistant", "content": "Hi", "tool_calls": None, **nothing}
    called = {"role": "assistant", "content": None, "tool_calls": calls, **nothing}
    refused = {"role": "assistant", "content": None, "tool_calls": None, "refusal": "No."}
    assert chat(messages=[said, called, refused, {**HELLO[0], "name": None}]).messages == [
        {"role": "assistant", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": "No.", "refusal": "No."},
        HELLO[0],
    ]


def test_parts_that_were_refused_come_back_as_what_was_said() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    parts = [{"type": "text", "text": "Sorry."}, refusal]
    (read,) = chat(messages=[{"role": "assistant", "content": parts}]).messages
    assert read["content"] == [{"type": "text", "text": "Sorry."}, {"type": "text", "text": "No."}]
    assert text_of(read) == "Sorry.\nNo."
    with pytest.raises(FieldError) as refused:
        chat(messages=[{"role": "assistant", "content": [{"type": "refusal", "text": "No."}]}])
    assert (refused.value.param, refused.value.message) == (
        "messages[0].content[0].refusal",
        "'messages[0].content[0].refusal' has to be a string.",
    )
    asked = [{"role": "user", "content": [refusal]}]  # nobody but an assistant refuses: its model will tell
    assert chat(messages=asked).messages == asked


def test_text_of_a_message() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert text_of({"role": "user", "content": parts}) == "a\nb"
    assert text_of({"role": "user", "content": "c"}) == "c"
    assert text_of({"role": "assistant", "content": None}) == ""
    assert text_of({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}) == ""


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), ("", [""]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_four_forms_of_a_prompt(prompt: Any, prompts: list[Any]) -> None:
    assert completion(prompt=prompt).prompts == prompts


def test_options_of_completions() -> None:
    request = completion(n=2, echo=True, logprobs=0, max_tokens=3)
    assert request.options == {"logprobs": 0, "max_tokens": 3}
    assert (request.choice_count, request.has_echo) == (2, True)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": ["a"] * 1025}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 100}, "n"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"echo": 1}, "echo"),
    ],
)
def test_refused_completion_names_the_field(members: dict[str, Any], param: str) -> None:
    with pytest.raises(FieldError) as refused:
        completion(**members)
    assert refused.value.param == param


def test_embeddings() -> None:
    request = read_embedding(Fields({"model": "m", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 2}))
    assert (request.inputs, request.is_base64, request.dimensions) == (["a", "b"], True, 2)
    assert read_embedding(Fields({"model": "m", "input": [[1, 2], [3]]})).inputs == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
    ],
)
def test_refused_embedding_names_the_field(members: dict[str, Any], param: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_embedding(Fields({"model": "m", "input": "a", **members}))
    assert refused.value.param == param


def test_tokenize_takes_a_text_or_a_chat() -> None:
    text = read_tokenize(Fields({"model": "m", "prompt": "a", "add_special_tokens": False}))
    assert (text.prompt, text.messages, text.options) == ("a", None, {"add_special_tokens": False})
    assert read_tokenize(Fields({"model": "m", "messages": HELLO})).messages == HELLO
    with pytest.raises(FieldError, match="'prompt' or 'messages'"):
        read_tokenize(Fields({"model": "m"}))


def test_detokenize_takes_ids() -> None:
    assert read_detokenize(Fields({"model": "m", "tokens": [1, 2]})).tokens == [1, 2]
    with pytest.raises(FieldError, match="token ids"):
        read_detokenize(Fields({"model": "m", "tokens": ["a"]}))


@pytest.mark.parametrize(("body", "words"), [(b"{", "not valid JSON"), (b"[]", "a JSON object"), (b"", "not valid")])
def test_body_that_is_no_object(body: bytes, words: str) -> None:
    with pytest.raises(FieldError, match=words) as refused:
        read_body(body, 100)
    assert refused.value.param is None


def test_body_that_is_too_long() -> None:
    with pytest.raises(TooLargeError, match="101 bytes"):
        read_body(b" " * 101, 100)


def test_long_body_is_read() -> None:
    text = "x" * (2 << 20)
    assert read_body(json.dumps({"prompt": text}).encode(), 4 << 20).text("prompt") == text


def test_a_model_with_a_name_that_nothing_can_have_is_refused_by_its_length() -> None:
    for body in ({"prompt": "x"}, {"messages": [{"role": "user", "content": "x"}]}):
        with pytest.raises(FieldError) as caught:
            (read_completion if "prompt" in body else read_chat)(Fields({"model": "m" * 65_537, **body}))
        assert caught.value.message == "'model' has 65537 characters; at most 65536 are allowed."


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"guided_choice": []}, "'guided_choice' has to have at least one text to choose."),
        ({"guided_choice": ["a", 3]}, "'guided_choice' has to be an array of strings."),
        ({"prompt": [-4]}, "'prompt' has -4, which is no token id: those are 0 or more."),
        ({"prompt": [[3], [5, -4]]}, "'prompt' has -4, which is no token id: those are 0 or more."),
        ({"max_tokens": -1}, "'max_tokens' has to be at least 1, not -1."),
        (
            {"max_tokens": 2**63},
            "'max_tokens' has to be between 1 and 9223372036854775807, not 9223372036854775808.",
        ),
        ({"prompt": [2**63]}, "'prompt' has 9223372036854775808, which is no token id: those are 0 or more."),
    ],
)
def test_what_is_wrong_with_entries_is_told(members: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FieldError) as refused:
        completion(**members)
    assert refused.value.message == sentence
