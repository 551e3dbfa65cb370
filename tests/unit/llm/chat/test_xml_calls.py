"""Calls whose arguments are elements become JSON of the schema's types, wherever the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing import call, cuts, numbered, parsed

from trireme.llm.chat.argument_values import argument_json
from trireme.llm.chat.events import CallArguments, CallEnd, CallStart, Content, Event
from trireme.llm.chat.tool_parser import ToolParser
from trireme.llm.chat.xml_calls import DsmlParser, GlmParser, MiniMaxParser, SeedParser, XmlParser

SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "deep": {"type": "object"},
            "maybe": {"type": ["string", "null"]},
        }
    },
    "time": {},
}
DSML = "\uff5cDSML\uff5c"
ARGUMENTS = '{"city": "Pa\\"ris\\n< 5", "days": 3, "deep": {"a": [1]}}'

CASES: dict[str, tuple[type[ToolParser], str, list[Event]]] = {
    "qwen": (
        XmlParser,
        'I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nPa"ris\n< 5\n</parameter>\n<parameter=days>\n3\n'
        '</parameter>\n<parameter=deep>\n{"a": [1]}\n</parameter>\n</function>\n</tool_call>',
        [Content("I look."), *call(0, "weather", ARGUMENTS)],
    ),
    "qwen, two, without the outer tags": (
        XmlParser,
        "<function=time>\n</function><function=weather><parameter=city>3</parameter></function> ",
        [*call(0, "time", "{}"), *call(1, "weather", '{"city": "3"}')],
    ),
    "qwen, a call that is not closed": (
        XmlParser,
        "<tool_call><function=time><parameter=a>1</parameter><function=time></function></tool_call>",
        [*call(0, "time", '{"a": 1}'), *call(1, "time", "{}")],
    ),
    "qwen, values of other types than the schema's": (
        XmlParser,
        "<function=weather><parameter=days>\nmany\n</parameter><parameter=maybe>null</parameter></function>",
        call(0, "weather", '{"days": "many", "maybe": null}'),
    ),
    "qwen, Python's values": (
        XmlParser,
        "<function=weather><parameter=deep>{'a': True}</parameter></function>",
        call(0, "weather", '{"deep": {"a": true}}'),
    ),
    "qwen, no call": (
        XmlParser,
        "the tag <tool_call> opens, <b> is bold",
        [Content("the tag <tool_call> opens, <b> is bold")],
    ),
    "qwen, cut off in a text": (
        XmlParser,
        "<tool_call><function=weather><parameter=city>Par",
        [CallStart(0, "id0", "weather"), CallArguments(0, '{"city": "Par'), CallEnd(0)],
    ),
    "qwen, cut off in the name": (XmlParser, "a <tool_call><function=wea", [Content("a <tool_call><function=wea")]),
    "seed": (
        SeedParser,
        "<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
        call(0, "weather", '{"city": "Rome"}'),
    ),
    "minimax": (
        MiniMaxParser,
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n'
        '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="time">\n</invoke>\n</minimax:tool_call>',
        [*call(0, "weather", '{"city": "Rome", "days": 2}'), *call(1, "time", "{}")],
    ),
    "deepseek 3.2": (
        DsmlParser,
        f'Well.<{DSML}function_calls>\n<{DSML}invoke name="time">\n<{DSML}parameter name="zone" string="true">7'
        f'</{DSML}parameter>\n<{DSML}parameter name="at" string="false">7</{DSML}parameter>\n</{DSML}invoke>\n'
        f"</{DSML}function_calls>",
        [Content("Well."), *call(0, "time", '{"zone": "7", "at": 7}')],
    ),
    "glm": (
        GlmParser,
        "Yes.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>time\n</tool_call>",
        [Content("Yes."), *call(0, "weather", '{"city": "Rome", "days": 2}'), *call(1, "time", "{}")],
    ),
    "glm, on one line": (
        GlmParser,
        "<tool_call>weather<arg_key>city</arg_key><arg_value>a\nb</arg_value></tool_call>",
        call(0, "weather", '{"city": "a\\nb"}'),
    ),
    "glm, no call": (GlmParser, "<tool_call> is a tag\n, see", [Content("<tool_call> is a tag\n, see")]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_events_wherever_the_text_is_cut(name: str) -> None:
    kind, text, wanted = CASES[name]
    for pieces in cuts(text):
        assert parsed(kind(SCHEMAS, numbered(), SCHEMAS), pieces) == wanted, pieces


PARTS = [
    "<tool_call>", "</tool_call>", "<function=", "weather", ">", "</function>", "<parameter=", "city", "days",
    "</parameter>", "<invoke name=", '"', "</invoke>", '<parameter name="', "<minimax:tool_call>", "<arg_key>",
    "</arg_key>", "<arg_value>", "</arg_value>", "\n", " ", "3", '{"a": 1}', "null", "<", "text", "\\", "é",
]  # fmt: skip


@given(
    st.sampled_from([XmlParser, SeedParser, MiniMaxParser, DsmlParser, GlmParser]),
    st.lists(st.sampled_from(PARTS), max_size=16),
    st.data(),
)
def test_any_text_gives_the_same_events_however_it_is_cut(
    kind: type[ToolParser], parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    pieces, rest = [], text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    found = parsed(kind(SCHEMAS, numbered(), SCHEMAS), pieces)
    assert found == parsed(kind(SCHEMAS, numbered(), SCHEMAS), [text])


@given(st.text(), st.text(st.characters(exclude_characters="<"), max_size=20), st.data())
def test_a_call_of_random_texts_is_read_as_it_was_written(before: str, city: str, data: st.DataObject) -> None:
    text = f"<tool_call>\n<function=weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
    pieces, rest = [], text
    while rest:
        size = data.draw(st.integers(1, 9))
        pieces.append(rest[:size])
        rest = rest[size:]
    events = parsed(XmlParser(SCHEMAS, numbered(), SCHEMAS), pieces)
    (arguments,) = [event.text for event in events if isinstance(event, CallArguments)]
    assert json.loads(arguments) == {"city": city}


def test_a_text_is_told_while_it_is_written() -> None:
    parser = XmlParser(SCHEMAS, numbered(), SCHEMAS)
    parser.feed("<tool_call><function=weather><parameter=city>")
    assert parser.feed("Par") == [CallArguments(0, '"'), CallArguments(0, "Par")]
    assert parser.feed("is</para") == [CallArguments(0, "is")]


@pytest.mark.parametrize(
    ("text", "schema", "wanted"),
    [
        ("3", {"type": "integer"}, "3"),
        ("3.0", {"type": "integer"}, "3.0"),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("1e999", {"type": "number"}, '"1e999"'),
        ("[1e999]", None, '"[1e999]"'),
        ("true", {"type": "boolean"}, "true"),
        ("False", {"type": "boolean"}, "false"),
        ("3", {"anyOf": [{"type": "string"}, {"type": "null"}]}, '"3"'),
        ("[1, 2]", None, "[1, 2]"),
        ("Rome", None, '"Rome"'),
        ("", {"type": "integer"}, '""'),
    ],
)
def test_arguments_become_values_of_their_type(text: str, schema: Any, wanted: str) -> None:
    assert argument_json(text, schema) == wanted
