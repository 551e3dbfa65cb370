"""Calls of tools are found in every format, wherever the text is cut; what is none stays content."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing import call, cuts, merged, numbered, parsed

from trireme.llm.chat.deepseek import ALL_CLOSING, ALL_OPENING, CLOSING, OPENING, SEPARATOR, DeepSeekParser
from trireme.llm.chat.events import CallArguments, CallEnd, CallStart, Content, Event
from trireme.llm.chat.hermes import HermesParser
from trireme.llm.chat.llama import LlamaParser
from trireme.llm.chat.mistral import MistralParser, mistral_call_id
from trireme.llm.chat.pythonic import PythonicParser
from trireme.llm.chat.tool_parser import ToolParser, new_call_id

WEATHER = '{"city": "Paris \\"}<", "days": [1, {"a": 2}]}'
NAMES = ("weather", "time", "my.tool")

CASES: dict[str, tuple[type[ToolParser], str, list[Event]]] = {
    "hermes": (
        HermesParser,
        f'I look.\n<tool_call>\n{{"name": "weather", "arguments": {WEATHER}}}\n</tool_call>\n',
        [Content("I look."), *call(0, "weather", WEATHER)],
    ),
    "hermes, two, the first not closed": (
        HermesParser,
        '<tool_call>{"arguments": {"a": 1}, "name": "time"}<tool_call>{"name": "x"}</tool_call> Done.',
        [*call(0, "time", '{"a": 1}'), *call(1, "x", "{}"), Content(" Done.")],
    ),
    "hermes, arguments in a string": (
        HermesParser,
        '<tool_call>{"name": "time", "arguments": "{\\"a\\": 1}"}</tool_call>',
        call(0, "time", '{"a": 1}'),
    ),
    "hermes, no JSON": (
        HermesParser,
        "a <tool_call>weather in Paris</tool_call> b",
        [Content("a <tool_call>weather in Paris</tool_call> b")],
    ),
    "hermes, no call": (HermesParser, "one < two \n\n", [Content("one < two \n\n")]),
    "hermes, cut off before the name": (
        HermesParser,
        'a <tool_call>{"name": "wea',
        [Content('a <tool_call>{"name": "wea')],
    ),
    "hermes, cut off in the arguments": (
        HermesParser,
        '<tool_call>{"name": "time", "arguments": {"a": "b',
        [CallStart(0, "id0", "time"), CallArguments(0, '{"a": "b'), CallEnd(0)],
    ),
    "llama": (LlamaParser, f' {{"name": "weather", "parameters": {WEATHER}}}\n', call(0, "weather", WEATHER)),
    "llama with its type": (
        LlamaParser,
        f'{{"type": "function", "name": "weather", "parameters": {WEATHER}}}',
        call(0, "weather", WEATHER),
    ),
    "llama, two": (
        LlamaParser,
        '{"name": "time", "parameters": {}}; {"name": "weather", "parameters": {"a": null}}',
        [*call(0, "time", "{}"), *call(1, "weather", '{"a": null}')],
    ),
    "llama behind its tag": (
        LlamaParser,
        'Let me see. <|python_tag|>{"name": "time", "parameters": {"zone": "CET"}}',
        [Content("Let me see."), *call(0, "time", '{"zone": "CET"}')],
    ),
    "llama, code": (LlamaParser, "<|python_tag|>print(1)", [Content("print(1)")]),
    "llama, other JSON": (
        LlamaParser,
        '{"name": "Bob", "parameters": {"age": 3}}',
        [Content('{"name": "Bob", "parameters": {"age": 3}}')],
    ),
    "llama, JSON without parameters": (LlamaParser, '{"name": "time"}', [Content('{"name": "time"}')]),
    "llama, an answer": (LlamaParser, "It rains {a lot}.", [Content("It rains {a lot}.")]),
    "mistral": (
        MistralParser,
        f'Well.[TOOL_CALLS] [{{"name": "weather", "arguments": {WEATHER}}}, {{"name": "time", "arguments": {{}}}}]',
        [Content("Well."), *call(0, "weather", WEATHER), *call(1, "time", "{}")],
    ),
    "mistral, later": (
        MistralParser,
        f"[TOOL_CALLS]weather[ARGS]{WEATHER}[TOOL_CALLS]time[CALL_ID]123456789[ARGS]{{}}",
        [*call(0, "weather", WEATHER), *call(1, "time", "{}")],
    ),
    "mistral, no call": (MistralParser, "see [TOOL", [Content("see [TOOL")]),
    "deepseek": (
        DeepSeekParser,
        f"Yes.{ALL_OPENING}{OPENING}function{SEPARATOR}weather\n```json\n{WEATHER}\n```{CLOSING}\n"
        f"{OPENING}function{SEPARATOR}time\n```json\n{{}}\n```{CLOSING}{ALL_CLOSING}",
        [Content("Yes."), *call(0, "weather", WEATHER), *call(1, "time", "{}")],
    ),
    "deepseek 3.1": (
        DeepSeekParser,
        f"{ALL_OPENING}{OPENING}weather{SEPARATOR}{WEATHER}{CLOSING}{OPENING}time{SEPARATOR}{{}}{CLOSING}{ALL_CLOSING}",
        [*call(0, "weather", WEATHER), *call(1, "time", "{}")],
    ),
    "pythonic": (
        PythonicParser,
        """ [weather(city='Pa"ris)', days=[1, -2.5], deep={"a": None}), my.tool(b=True, c=false), time()]""",
        [
            *call(0, "weather", '{"city": "Pa\\"ris)", "days": [1, -2.5], "deep": {"a": null}}'),
            *call(1, "my.tool", '{"b": true, "c": false}'),
            *call(2, "time", "{}"),
        ],
    ),
    "pythonic, names that Python has for itself": (
        PythonicParser,
        """[time(from="a, if=1", class = 2, x-y=[3], $top=4, in_=(5,))]""",
        call(0, "time", '{"from": "a, if=1", "class": 2, "x-y": [3], "$top": 4, "in_": [5]}'),
    ),
    "pythonic behind its tag": (PythonicParser, "<|python_start|>[time()]<|python_end|>", call(0, "time", "{}")),
    "pythonic, a list": (PythonicParser, "[1] is a note, [see(here)]", [Content("[1] is a note, [see(here)]")]),
    "pythonic, code in an argument": (PythonicParser, "[time(zone=open(1))]", [Content("[time(zone=open(1))]")]),
    "pythonic, a number beyond JSON's": (PythonicParser, "[time(a=1e999)]", [Content("[time(a=1e999)]")]),
    "pythonic, a number of many digits": (
        PythonicParser,
        f"[time(a=0x{'f' * 5000})]",
        [Content(f"[time(a=0x{'f' * 5000})]")],
    ),
    "pythonic, the second cut off": (
        PythonicParser,
        "[time(), time(zone='\\'",
        [*call(0, "time", "{}"), Content(", time(zone='\\'")],
    ),
    "pythonic, cut off": (PythonicParser, "[time(zone=", [Content("[time(zone=")]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_events_wherever_the_text_is_cut(name: str) -> None:
    kind, text, wanted = CASES[name]
    for pieces in cuts(text) if len(text) < 1000 else ([text], list(text)):
        assert parsed(kind(NAMES, numbered()), pieces) == wanted, pieces


@given(
    st.sampled_from([HermesParser, LlamaParser, MistralParser, DeepSeekParser, PythonicParser]),
    st.lists(
        st.sampled_from([
            "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", ALL_OPENING, OPENING, SEPARATOR,
            CLOSING, ALL_CLOSING, '{"name": "time", ', '"arguments": {"a": "b"}', '"parameters": 3', "}", "[", "]",
            "time(a=1)", "(", "'", '"', "\\", " ", "\n", "text", "{", ",", ":", ";", "<",
        ]),
        max_size=12,
    ),
    st.data(),
)  # fmt: skip
def test_any_text_gives_the_same_events_however_it_is_cut(
    kind: type[ToolParser], parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    pieces, rest = [], text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert parsed(kind(NAMES, numbered()), pieces) == parsed(kind(NAMES, numbered()), [text])


def test_arguments_are_told_while_they_are_written() -> None:
    parser = HermesParser()
    parser.feed('<tool_call>{"name": "time", "arguments": ')
    assert parser.feed('{"zone": ') == [CallArguments(0, '{"zone": ')]
    assert parser.feed('"CE') == [CallArguments(0, '"CE')]


def test_content_is_told_while_it_is_written() -> None:
    assert HermesParser().feed("It rains, and < is no tag") == [Content("It rains, and < is no tag")]


@pytest.mark.parametrize("kind", [HermesParser, LlamaParser])
def test_arguments_of_any_depth_are_passed_on(kind: type[ToolParser]) -> None:
    arguments = '{"a": ' + "[" * 5000 + "]" * 5000 + "}"
    text = f'{{"name": "time", "arguments": {arguments}}}'
    text = f"<tool_call>{text}</tool_call>" if kind is HermesParser else text
    assert parsed(kind(NAMES, numbered()), [text]) == call(0, "time", arguments)


def test_a_long_call_is_looked_at_once() -> None:
    parser = PythonicParser(NAMES, numbered())
    parser.feed("[time(zone='")
    began_s = time.process_time()
    for _ in range(8000):
        assert parser.feed("word") == []
    assert time.process_time() - began_s < 5  # a look at all of it with every piece takes a minute
    assert merged(parser.feed("')]")) == call(0, "time", f'{{"zone": "{"word" * 8000}"}}')


def test_ids_are_as_their_users_expect_them() -> None:
    assert len({new_call_id() for _ in range(50)}) == 50
    assert new_call_id().startswith("call_")
    assert len(mistral_call_id()) == 9
    assert mistral_call_id().isalnum()
