"""Of an answer that `max_tokens` cuts off in a call, nothing of the call is content."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import pytest
from parsing import numbered
from test_tool_parsers import CASES as JSON_CASES
from test_tool_parsers import NAMES
from test_xml_calls import CASES as XML_CASES
from test_xml_calls import SCHEMAS

from trireme.llm.chat.deepseek import OPENING, DeepSeekParser
from trireme.llm.chat.events import CallArguments, CallEnd, CallStart, Content, Event
from trireme.llm.chat.hermes import HermesParser
from trireme.llm.chat.llama import LlamaParser
from trireme.llm.chat.mistral import MistralParser
from trireme.llm.chat.pythonic import PythonicParser
from trireme.llm.chat.tool_parser import ToolParser
from trireme.llm.chat.xml_calls import GlmParser, XmlParser

CASES: dict[str, tuple[type[ToolParser], str, list[Event]]] = {
    name: case for name, case in (JSON_CASES | XML_CASES).items() if CallEnd(0) in case[2]
}


def cut_off(kind: type[ToolParser], pieces: Sequence[str]) -> list[Event]:
    parser = kind(NAMES, numbered(), SCHEMAS)
    return [event for piece in pieces for event in parser.feed(piece)] + parser.finish(is_cut=True)


def content_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


def calls_of(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Names and arguments."""
    return [
        (
            start.name,
            "".join(one.text for one in events if isinstance(one, CallArguments) and one.index == start.index),
        )
        for start in events
        if isinstance(start, CallStart)
    ]


@pytest.mark.parametrize("name", CASES)
def test_wherever_an_answer_is_cut_off_it_has_the_beginning_of_what_it_would_have_had(name: str) -> None:
    kind, text, wanted = CASES[name]
    content, calls = content_of(wanted), calls_of(wanted)
    for at in range(len(text) + 1):
        for pieces in ([text[:at]], list(text[:at])):
            found = cut_off(kind, pieces)
            told = content_of(found)
            common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(told, content, strict=False))))
            assert not told[common:].strip(), pieces
            for (called, arguments), (whole_name, whole_arguments) in zip(calls_of(found), calls, strict=False):
                assert called == whole_name
                assert whole_arguments.startswith(arguments), pieces
            assert len(calls_of(found)) <= len(calls)


@pytest.mark.parametrize(
    ("kind", "text", "content"),
    [
        (HermesParser, 'I look.\n<tool_call>{"name": "wea', "I look."),
        (HermesParser, "I look.\n<tool_ca", "I look."),
        (HermesParser, "1 <", "1"),
        (MistralParser, "I look.[TO", "I look."),
        (DeepSeekParser, "I look.<", "I look."),
        (LlamaParser, "I look.<|p", "I look."),
        (PythonicParser, "<|", ""),
        (PythonicParser, " [", ""),
        (LlamaParser, '{"name": "wea', ""),
        (LlamaParser, '{"name": "Alice B', '{"name": "Alice B'),
        (LlamaParser, '{"age": 3', '{"age": 3'),
        (LlamaParser, '{"ag', '{"ag'),
        (LlamaParser, '{"par', ""),
        (LlamaParser, '{"type": "func', ""),
        (LlamaParser, '{"type": "function", "na', ""),
        (LlamaParser, '{"type": "report of a very long', '{"type": "report of a very long'),
        (LlamaParser, '{"type": "report", "na', '{"type": "report", "na'),
        (LlamaParser, '{"type": "report", "name": "Alice', '{"type": "report", "name": "Alice'),
        (LlamaParser, '{"type": "report"', '{"type": "report"'),
        (LlamaParser, '{"type": {"a": 1', '{"type": {"a": 1'),
        (LlamaParser, '{"id": "1', '{"id": "1'),
        (LlamaParser, '{"id": 1', '{"id": 1'),
        (LlamaParser, '{"id": ', '{"id": '),
        (LlamaParser, '{"type": ', ""),
        (LlamaParser, '{"id": "1", ', '{"id": "1", '),
        (LlamaParser, '{"id": "1", "name": "wea', ""),
        (LlamaParser, '{"parameters": {"name": "Alice', ""),
        (MistralParser, "I look.[TOOL_CALLS]weather[AR", "I look."),
        (DeepSeekParser, f"{OPENING}wea", ""),
        (PythonicParser, '[weather(city="Par', ""),
        (PythonicParser, '[time(), weather(city="Par', ""),
        (PythonicParser, "[wea", ""),
        (PythonicParser, "[see(the no", "[see(the no"),
        (PythonicParser, "[1", "[1"),
        (XmlParser, "I look.\n<tool_call>\n<function=wea", "I look."),
        (XmlParser, "I look.\n<tool_call>\n<fun", "I look."),
        (GlmParser, "<tool_call>wea", ""),
        (GlmParser, "<tool_call> is a tag, wh", "<tool_call> is a tag, wh"),
    ],
)
def test_what_is_no_call_so_far_is_content(kind: type[ToolParser], text: str, content: str) -> None:
    for pieces in ([text], list(text)):
        assert content_of(cut_off(kind, pieces)) == content


def test_a_text_that_is_cut_off_has_nothing_of_the_tag_behind_it() -> None:
    found = cut_off(XmlParser, ["<tool_call><function=weather><parameter=city>\nParis\n</param"])
    assert calls_of(found) == [("weather", '{"city": "Paris')]
