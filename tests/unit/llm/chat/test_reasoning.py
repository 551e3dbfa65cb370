"""What a model writes for itself is parted from its answer, whoever opened it."""

from __future__ import annotations

import pytest
from parsing import call, cuts, numbered, parsed

from trireme.llm.chat.chat_parser import ChatParser
from trireme.llm.chat.events import Content, Event, Reasoning
from trireme.llm.chat.hermes import HermesParser
from trireme.llm.chat.reasoning import ReasoningSplitter, ReasoningTags

THINK = ReasoningTags("<think>", "</think>")


@pytest.mark.parametrize(
    ("text", "is_open", "wanted"),
    [
        ("<think>\nOne.\n\nT < t.\n</think>\n\nFour. ", False, [Reasoning("One.\n\nT < t."), Content("Four. ")]),
        ("\nOne.\n</think>\nFour.", True, [Reasoning("One."), Content("Four.")]),
        ("<think>\n\n</think>\n\nFour.", False, [Content("Four.")]),
        ("Four <think> five </think>", False, [Content("Four <think> five </think>")]),
        (" Four.\n", False, [Content(" Four.\n")]),
        ("<think>One, cut off\n", False, [Reasoning("One, cut off")]),
        ("<thi", False, [Content("<thi")]),
        ("One</thi", True, [Reasoning("One</thi")]),
        ("", True, []),
    ],
)  # fmt: skip
def test_reasoning_is_parted_wherever_the_text_is_cut(text: str, is_open: bool, wanted: list[Event]) -> None:
    for pieces in cuts(text):
        assert parsed(ReasoningSplitter(THINK, is_open), pieces) == wanted, pieces


@pytest.mark.parametrize(
    ("text", "is_open", "wanted"),
    [
        ("<thi", False, []),
        ("One</thi", True, [Reasoning("One")]),
        ("<think>One", False, [Reasoning("One")]),
        ("<think>One</think>Two", False, [Reasoning("One"), Content("Two")]),
        ("Four", False, [Content("Four")]),
    ],
)
def test_of_an_answer_that_is_cut_off_the_beginning_of_a_tag_is_no_text(
    text: str, is_open: bool, wanted: list[Event]
) -> None:
    for pieces in ([text], list(text)):
        splitter = ReasoningSplitter(THINK, is_open)
        found = [event for piece in pieces for event in splitter.feed(piece)] + splitter.finish(is_cut=True)
        for kind in (Reasoning, Content):
            told = "".join(event.text for event in found if isinstance(event, kind))
            assert told == "".join(event.text for event in wanted if isinstance(event, kind))


def test_calls_are_looked_for_behind_the_reasoning() -> None:
    inner = '<tool_call>{"name": "time"}</tool_call>'
    text = f"<think>Shall I write {inner}?</think>\n{inner}"
    for pieces in cuts(text):
        parser = ChatParser(ReasoningSplitter(THINK, False), HermesParser((), numbered()))
        assert parsed(parser, pieces) == [Reasoning(f"Shall I write {inner}?"), *call(0, "time", "{}")]


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("<|assistant|><think>\n", True),
        ("<|assistant|><think>", True),
        ("<|assistant|>", False),
        ("<think>\n\n</think>\n\n", False),
        ("What is <think> for?<|assistant|>", False),
    ],
)
def test_a_prompt_may_have_opened_the_reasoning(prompt: str, is_open: bool) -> None:
    assert THINK.is_open(prompt) is is_open
