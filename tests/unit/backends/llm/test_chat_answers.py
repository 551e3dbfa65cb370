"""Chats are answered with OpenAI's deltas and messages: content, reasoning, calls of tools, one parser per choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trireme.backends.llm.chat_message import ChatMessage
from trireme.llm.chat.chat_parser import ChatParser
from trireme.llm.chat.hermes import HermesParser
from trireme.llm.chat.reasoning import ReasoningSplitter, ReasoningTags

TEXT = '<think>Hm.</think>I ask.\n<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
Ask = Callable[..., list[dict[str, list[Any]]]]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["days"],
                "additionalProperties": False,
            },
        },
    }
]
REQUIRED = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100}


def parser() -> ChatParser:
    return ChatParser(ReasoningSplitter(ReasoningTags("<think>", "</think>"), False), HermesParser((), lambda: "id0"))


def joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of deltas."""
    found: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for delta in deltas:
        found["content"] += delta.get("content", "")
        found["reasoning_content"] += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(found["tool_calls"])
                found["tool_calls"].append({"id": call["id"], "type": call["type"], "function": {"arguments": ""}})
            function = found["tool_calls"][call["index"]]["function"]
            function["arguments"] += call["function"]["arguments"]
            if "name" in call["function"]:
                function["name"] = call["function"]["name"]
    return found


def test_deltas_put_together_are_the_message() -> None:
    for size in (1, 3, 10, len(TEXT)):
        message = ChatMessage(parser())
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        deltas = [message.add(piece, False) for piece in pieces] + [message.add("", True)]
        assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * len(pieces)]
        whole = {
            "content": "I ask.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "id0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
            ],
        }
        assert joined(deltas) == whole
        assert message.message() == {"role": "assistant", **whole}


@pytest.mark.parametrize(("text", "content"), [("I ask.\n<tool\ufffd", "I ask."), ("I as\ufffd\ufffd", "I as")])
def test_half_a_character_at_the_end_of_an_answer_that_was_cut_off_is_left_out(text: str, content: str) -> None:
    message = ChatMessage(parser())
    message.add(text, True, is_cut=True)
    assert message.message() == {"role": "assistant", "content": content}
    whole = ChatMessage(parser())
    whole.add(text, True)
    assert whole.message()["content"] == text


def test_an_enforced_call_is_one_message(answer: Ask) -> None:
    (response,) = answer(**REQUIRED)
    message = json.loads(response["delta"][0])
    (call,) = message["tool_calls"]
    assert message["content"] is None
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["days"] in range(1, 10)
    assert response["finish_reason"] == ["tool_calls"]


def test_every_choice_has_its_own_parser(answer: Ask) -> None:
    (response,) = answer(**REQUIRED, n=3, temperature=1.0, seed=4)
    messages = json.loads(response["delta"][0])
    assert [len(message["tool_calls"]) for message in messages] == [1, 1, 1]
    assert response["finish_reason"] == ["tool_calls"] * 3
    assert len({message["tool_calls"][0]["id"] for message in messages}) == 3


def test_streams_tell_calls_as_they_are_written(answer: Ask) -> None:
    pieces = answer(**REQUIRED, stream=True, n=2, temperature=1.0, seed=4)
    for index in (0, 1):
        own = [piece for piece in pieces if piece["index"] == [index]]
        deltas = [json.loads(piece["delta"][0]) for piece in own]
        assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
        (call,) = joined(deltas)["tool_calls"]
        assert json.loads(call["function"]["arguments"])["days"] in range(1, 10)
        assert [piece["finish_reason"] for piece in own] == [[""]] * (len(own) - 1) + [["tool_calls"]]


def test_an_answer_without_calls_is_plain_content(answer: Ask) -> None:
    (response,) = answer(tools=TOOLS, max_tokens=40)
    content = {"role": "assistant", "content": "The capital of France is Paris."}
    assert (json.loads(response["delta"][0]), response["finish_reason"]) == (content, ["stop"])


def test_a_text_by_schema_is_the_same_in_pieces(answer: Ask) -> None:
    wanted = {"guided_json": {"enum": ["one", "two"]}, "max_tokens": 20}
    (whole,) = answer(text="Count:", **wanted)
    pieces = answer(text="Count:", stream=True, **wanted)
    assert json.loads(whole["text_output"][0]) in ("one", "two")
    assert "".join(piece["text_output"][0] for piece in pieces) == whole["text_output"][0]
    assert "delta" not in whole


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_is_cut_off_in_a_call_has_no_content(answer: Ask, is_stream: bool) -> None:
    names = []
    for count in range(1, 40, 4):
        pieces = answer(**REQUIRED | {"max_tokens": count}, stream=is_stream)
        deltas = [json.loads(piece["delta"][0]) for piece in pieces]
        found = (
            joined([delta | {"content": delta.get("content") or ""} for delta in deltas]) if is_stream else deltas[0]
        )
        assert len(found["content"] or "") <= 3, found  # the first characters of a tag are a text's as well
        assert pieces[-1]["finish_reason"] in (["length"], ["tool_calls"])
        names += [call["function"]["name"] for call in found.get("tool_calls", ())]
    assert set(names) == {"weather"}  # whose arguments may be cut off
