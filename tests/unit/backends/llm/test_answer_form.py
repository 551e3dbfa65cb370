"""Options that ask for a form of the answer are followed, or refused with their name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trireme.backends.llm.answer_form import AnswerForms
from trireme.backends.llm.llm_request import LlmRequest
from trireme.llm import Engine, SamplingError
from trireme.llm.chat.formats import TOOL_FORMATS

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"response_format": {"type": "xml"}}, "'response_format' must be an object with the 'type' text, json_object"),
        ({"response_format": {"type": "json_schema"}}, "'response_format.json_schema.schema' must be a JSON schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "'response_format' can"),
        ({"response_format": "{"}, "'response_format' is no JSON"),
        ({"guided_regex": "("}, "'guided_regex' cannot be compiled"),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "one of 'guided_regex' and 'guided_choice', not both"),
        ({"tools": {}}, "'tools' must be a list"),
        ({"tools": [{"function": {}}]}, "'tools[0]' must be an object"),
        ({"tools": [{"function": {"name": "a", "parameters": 1}}]}, "'tools[0].function.parameters' must be"),
        ({"tool_choice": "required"}, "'tool_choice' needs 'tools'"),
        ({"tools": TOOLS, "tool_choice": "always"}, "'tool_choice' must be none, auto, required"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "time"}}}, "names the tool 'time', which is not one"),
        (
            {"tools": [{"function": {"name": "a", "parameters": {"type": "x"}}}], "tool_choice": "required"},
            "'tools' cannot be compiled",
        ),
    ],
)
def test_what_cannot_be_followed_is_named(read: Callable[..., LlmRequest], options: dict[str, Any], words: str) -> None:
    with pytest.raises(SamplingError) as refused:
        read(**options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": '{"type": "json_object"}'},
        {"guided_json": '{"type": "integer"}'},
        {"guided_json": {"type": "integer"}},
        {"guided_regex": "[0-9]+"},
        {"guided_grammar": 'start: "a"'},
        {"guided_choice": '["a", "b"]'},
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": '{"type": "function", "function": {"name": "weather"}}'},
    ],
)
def test_an_answer_gets_a_grammar(read: Callable[..., LlmRequest], options: dict[str, Any]) -> None:
    assert read(**options).params.grammar is not None


@pytest.mark.parametrize(
    "options",
    [{}, {"response_format": {"type": "text"}}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}],
)
def test_other_answers_are_free(read: Callable[..., LlmRequest], options: dict[str, Any]) -> None:
    assert read(**options).params.grammar is None


def test_texts_have_grammars_and_no_tools(read: Callable[..., LlmRequest]) -> None:
    assert read(text="Once", guided_choice=["a"]).params.grammar is not None
    with pytest.raises(SamplingError, match="'tool_choice' needs 'tools' and 'messages'"):
        read(text="Once", tools=TOOLS, tool_choice="required")


def test_calls_cannot_be_enforced_without_a_format(engine: Engine) -> None:
    with pytest.raises(SamplingError, match="parameter 'tool_parser' names one"):
        AnswerForms(engine, None, None).read({"tools": TOOLS, "tool_choice": "required"}, True, [1])


def test_a_tool_that_the_format_cannot_write_is_refused_by_its_name(engine: Engine) -> None:
    forms = AnswerForms(engine, TOOL_FORMATS["qwen3_coder"], None)
    tools = [*TOOLS, {"type": "function", "function": {"name": "a>b"}}]
    with pytest.raises(SamplingError) as refused:
        forms.read({"tools": tools}, True, [1])
    assert str(refused.value) == (
        "'tools[1].function.name' is 'a>b', which the model's format of tool calls ('qwen3_coder') cannot write: a "
        'name has no <, >, " or line break, and no blank at its beginning or end'
    )
    assert forms.read({"tools": tools, "tool_choice": "none"}, True, [1]).grammar is None
    assert AnswerForms(engine, TOOL_FORMATS["hermes"], None).read({"tools": tools}, True, [1]).grammar is None


def test_tools_that_a_model_is_not_told_of_are_told_of_once(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    forms, prompt = AnswerForms(engine, None, None), engine.tokenizer.encode("Hi")
    for _ in range(2):
        forms.read({"tools": TOOLS}, True, prompt)
    words = "a request has tools, but the model's chat template speaks of no format of tool calls that is known"
    assert [words in record.getMessage() for record in caplog.records] == [True]
    caplog.clear()
    other = AnswerForms(engine, None, None)
    other.read({"tools": TOOLS, "tool_choice": "none"}, True, prompt)
    other.read({}, True, prompt)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ('start: "a" <|im_start|> "b"', "a<|im_start|>b"),
        ('start: "a" <[1]> "b"', "a<|im_start|>b"),
        ('start: "a" <|im_end|> "b"', "a<|im_end|>b"),
        ('start: "a" <[2]> <|im_start|>', "a<|im_end|><|im_start|>"),
        ('start: "a" "<|im_end|>" "b"', "a<|im_end|>b"),
        ('start: "x" <|im_end|>', "x"),
        ('start: "x" <|im_end|>?', "x"),
        ("start: <|im_end|>", ""),
    ],
)
def test_special_tokens_that_a_grammar_asks_for_are_written(
    answer: Callable[..., list[dict[str, list[Any]]]], grammar: str, text: str
) -> None:
    (found,) = answer(text="Once", guided_grammar=grammar, max_tokens=20)
    assert found["text_output"] == [text]
    assert found["finish_reason"] == ["stop"]


def test_an_end_id_of_the_request_ends_an_answer_that_follows_a_grammar(
    answer: Callable[..., list[dict[str, list[Any]]]], engine: Engine
) -> None:
    (end,) = engine.tokenizer.encode("b", add_special=False)
    (found,) = answer(text="Once", guided_grammar=f'start: "a" <[{end}]> "c"', stop_token_ids=[end], max_tokens=20)
    assert found["text_output"] == ["a"]
    assert found["finish_reason"] == ["stop"]
