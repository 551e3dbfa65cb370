"""An answer that must call a tool does, in every format, with arguments that follow the tool's schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trireme.backends.llm.answer_form import AnswerForms
from trireme.backends.llm.chat_message import ChatMessage
from trireme.llm import Completion, Engine, FinishReason, SamplingParams
from trireme.llm.chat.formats import REASONING_TAGS, TOOL_FORMATS
from trireme.llm.grammar.token_bits import as_mask

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"$ref": "#/$defs/city"},
                    "days": {"type": "integer", "minimum": 1, "maximum": 9},
                    "is_exact": {"type": ["boolean", "null"]},
                },
                "required": ["days"],
                "additionalProperties": False,
                "$defs": {"city": {"enum": ["Paris", "Ro)me"]}},
            },
        },
    },
    {"type": "function", "function": {"name": "time"}},
]


def assert_is_call(call: dict[str, Any]) -> None:
    assert call["type"] == "function"
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "time":
        assert arguments == {}
        return
    assert call["function"]["name"] == "weather"
    assert arguments.keys() <= {"city", "days", "is_exact"}
    assert arguments["days"] in range(1, 10)
    assert arguments.get("city", "Paris") in ("Paris", "Ro)me")
    assert arguments.get("is_exact") in (True, False, None)


def answers(engine: Engine, forms: AnswerForms, options: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
    """The messages of several answers, those that were cut off left out."""
    form = forms.read(options, True, [3, 4])
    chosen = {"temperature": 1.0, "seed": 5, "max_tokens": 300, "choices": 6, **params}
    found = engine.generate([3, 4], SamplingParams(grammar=form.grammar, shown_ids=form.shown_ids, **chosen))
    return [message(form.make_parser(), one) for one in found if one.finish_reason is FinishReason.STOP]


def message(parser: Any, one: Completion) -> dict[str, Any]:
    written = ChatMessage(parser)
    written.add(one.text, True)
    return written.message()


@pytest.mark.parametrize("name", TOOL_FORMATS)
@pytest.mark.parametrize("tokenizer", ["own", "tagged"])
def test_required_calls_are_made(start_random: Callable[..., Engine], name: str, tokenizer: str) -> None:
    engine = start_random(tokenizer)
    forms = AnswerForms(engine, TOOL_FORMATS[name], None)
    options = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    found = answers(engine, forms, options)
    assert len(found) >= 4
    for one in found:
        assert one["content"] is None
        (call,) = one["tool_calls"]
        assert_is_call(call)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_several_calls_may_be_made(start_random: Callable[..., Engine], name: str) -> None:
    engine = start_random()
    found = answers(engine, AnswerForms(engine, TOOL_FORMATS[name], None), {"tools": TOOLS, "tool_choice": "required"})
    for one in found:
        assert one["tool_calls"]
        for call in one["tool_calls"]:
            assert_is_call(call)


@pytest.mark.parametrize("name", ["hermes", "pythonic"])
def test_a_named_tool_is_called(scribe: Engine, name: str) -> None:
    forms = AnswerForms(scribe, TOOL_FORMATS[name], None)
    choice = {"type": "function", "function": {"name": "weather"}}
    found = answers(scribe, forms, {"tools": json.dumps(TOOLS), "tool_choice": json.dumps(choice)})
    assert found
    assert {call["function"]["name"] for one in found for call in one["tool_calls"]} == {"weather"}


def test_an_answer_by_schema_may_be_a_call_where_tools_are_offered(start_random: Callable[..., Engine]) -> None:
    engine = start_random()
    forms = AnswerForms(engine, TOOL_FORMATS["hermes"], None)
    wanted = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a", "b"]}}}
    found = answers(engine, forms, {"tools": TOOLS, "response_format": wanted}, choices=20, temperature=9.0)
    assert {bool(one.get("tool_calls")) for one in found} == {True, False}
    assert all(json.loads(one["content"]) in ("a", "b") for one in found if not one.get("tool_calls"))


@pytest.mark.parametrize(
    ("tail", "begins_inside"), [("<think>\n", True), ("hello", False), ("<think>\n\n</think>\n", False)]
)
def test_reasoning_is_free_and_the_answer_behind_it_is_not(
    start_random: Callable[..., Engine], tail: str, begins_inside: bool
) -> None:
    engine = start_random("tagged")
    forms = AnswerForms(engine, None, REASONING_TAGS["think"])
    prompt = engine.tokenizer.encode(tail, add_special=False)
    form = forms.read({"guided_choice": ["yes", "no"]}, True, prompt)
    opening, closing = (engine.tokenizer.encode(tag, add_special=False)[0] for tag in ("<think>", "</think>"))
    size = engine.core.spec.vocab_size
    assert form.grammar is not None
    state = form.grammar.start()
    assert bool(as_mask(state.allowed(size), size)[opening]) is (begins_inside or tail == "hello")
    if not begins_inside and tail == "hello":
        assert not as_mask(state.allowed(size), size)[closing]
        state.advance(opening)
        begins_inside = True
    if begins_inside:
        assert not as_mask(state.allowed(size), size)[sorted(engine.end_ids)].any()
        for token in (7, 8, 9, closing):
            assert as_mask(state.allowed(size), size)[token]
            state.advance(token)
    for token in engine.tokenizer.encode("yes", add_special=False):
        assert as_mask(state.allowed(size), size).sum() < 10
        state.advance(token)
    assert state.is_finished
    assert form.shown_ids == {opening, closing}


def test_reasoning_is_shown_and_split_off(start_random: Callable[..., Engine]) -> None:
    engine = start_random("tagged")
    forms = AnswerForms(engine, None, REASONING_TAGS["think"])
    closing = engine.tokenizer.encode("</think>", add_special=False)[0]
    prompt = engine.tokenizer.encode("<think>\n", add_special=False)
    form = forms.read({"guided_choice": ["yes", "no"]}, True, prompt)
    params = SamplingParams(
        max_tokens=100, temperature=1.0, seed=2, grammar=form.grammar, shown_ids=form.shown_ids,
        logit_bias={closing: 5.0},
    )  # fmt: skip
    (one,) = engine.generate(prompt, params)
    assert "</think>" in one.text
    found = message(form.make_parser(), one)
    assert found["content"] in ("yes", "no")
    assert found["reasoning_content"].strip()
