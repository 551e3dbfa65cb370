"""JSON text: what is accepted beyond the standard, the reasons and offsets of errors, and repeated members."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.protocol.json_codec.reader import MAX_DEPTH, MAX_VALUES, JsonSyntaxError, read
from trireme.protocol.json_codec.text import SlowTextError, encode_error, encode_scalar, encode_string, members, parse

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "The document is empty. at 0"),
        (b"   ", "The document is empty. at 3"),
        (b"{", "Missing a name for object member. at 1"),
        (b"[", "Invalid value. at 1"),
        (b"nul", "Invalid value. at 3"),
        (b'{"a"', "Missing a colon after a name of object member. at 4"),
        (b'{"a":', "Invalid value. at 5"),
        (b'{"a":1', "Missing a comma or '}' after an object member. at 6"),
        (b'{"a":1,', "Missing a name for object member. at 7"),
        (b'{"a":1,}', "Missing a name for object member. at 7; there is a comma too many before it"),
        (b"{a:1}", "Missing a name for object member. at 1; JSON wants names in double quotes"),
        (b"[1,]", "Invalid value. at 3; there is a comma too many before it"),
        (b"[1 2]", "Missing a comma or ']' after an array element. at 3"),
        (b'{"a" 1}', "Missing a colon after a name of object member. at 5"),
        (b'{"a":1} x', "The document root must not be followed by other values. at 8"),
        (b"{}{}", "The document root must not be followed by other values. at 2"),
        (b'"abc', "Missing a closing quotation mark in string. at 4"),
        (b'"\\x"', "Invalid escape character in string. at 1"),
        (b'"\\u12"', "Incorrect hex digit after \\u escape in string. at 1"),
        (b'"\\ud800"', "The surrogate pair in string is invalid. at 1"),
        (b'"\\ud800\\u0041"', "The surrogate pair in string is invalid. at 1"),
        (b"-", "Invalid value. at 1"),
        (b"1.", "Miss fraction part in number. at 2"),
        (b"1e", "Miss exponent in number. at 2"),
        (b"1e999", "Number too big to be stored in double. at 0"),
        (b"[1e400]", "Number too big to be stored in double. at 1"),
        (b"01", "The document root must not be followed by other values. at 1"),
        (b"+1", "Invalid value. at 0"),
        (b"'a'", "Invalid value. at 0; JSON wants double quotes"),
        (b'{"a": True}', "Invalid value. at 6; JSON writes true, false and null"),
        (b'{"a": None}', "Invalid value. at 7; JSON writes true, false and null"),
        (b"[a]", "Invalid value. at 1"),
        (b'"a\tb"', "Invalid escape character in string. at 2"),
        (b"\xff", "Invalid value. at 0"),
        (b"nan", "Invalid value. at 1"),
        (b"[-Infinity,]", "Invalid value. at 11; there is a comma too many before it"),
        (b"[1.5.2]", "Missing a comma or ']' after an array element. at 4"),
        (b'{"a":tru}', "Invalid value. at 8"),
        (b"// c\n{}", "Invalid value. at 0"),
    ],
)
def test_syntax_errors_name_the_reason_and_the_byte(text: bytes, reason: str) -> None:
    with pytest.raises(InternalError) as caught:
        parse(text)
    assert caught.value.message == f"failed to parse the request JSON buffer: {reason}"


def test_literals_that_json_has_not_are_numbers() -> None:
    values = parse(b"[NaN,-NaN,Inf,-Inf,Infinity,-Infinity,1]")
    assert [math.isnan(value) for value in values[:2]] == [True, True]
    assert values[2:] == [math.inf, -math.inf, math.inf, -math.inf, 1]


def test_strings_that_are_not_utf8_keep_their_bytes() -> None:
    (text,) = parse(b'["\xff\\n\xfe"]')
    assert text.encode("utf-8", "surrogateescape") == b"\xff\n\xfe"
    assert encode_string(text) == b'"\xff\\n\xfe"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud800", "a\ufffd"),
        ('"\udfff\n', '"\ufffd\n'),
        ("\udc7f\udd00\U0001f600", "\ufffd\ufffd\U0001f600"),
        ("\udbff" * 3, "\ufffd" * 3),
    ],
)
def test_halves_of_surrogate_pairs_are_written_as_replacement_characters(text: str, expected: str) -> None:
    assert json.loads(encode_string(text)) == orjson.loads(encode_string(text)) == expected
    assert orjson.loads(encode_error(text)) == {"error": expected}


def test_bytes_that_are_not_utf8_keep_theirs_beside_halves_of_surrogate_pairs() -> None:
    assert encode_string("\udcff\ud800") == b'"\xff\xef\xbf\xbd"'


def test_repeated_members_keep_the_first_value_and_their_order() -> None:
    value = parse(b'{"a":1,"b":{"c":2,"c":3},"a":4}')
    assert value["a"] == 1
    assert value["b"]["c"] == 2
    assert [name for name, _ in members(value)] == ["a", "b", "a"]


def test_colons_inside_strings_repeat_nothing() -> None:
    assert parse(b'{"a":"b:c"}') == {"a": "b:c"}


def test_texts_may_be_a_thousand_levels_deep_and_no_deeper() -> None:
    for scalar in (b"1", b"NaN"):
        value = parse(b"[" * MAX_DEPTH + scalar + b"]" * MAX_DEPTH)
        depth = 0
        while type(value) is list:
            (value,) = value
            depth += 1
        assert depth == MAX_DEPTH
    for text in (b"[" * 250_000 + b"1" + b"]" * 250_000, b"[" * 250_000, b'{"a":' * 250_000, b"[" * 1100 + b"NaN"):
        with pytest.raises(InvalidArgumentError, match=r"JSON nesting depth exceeds maximum allowed limit \(1024\)"):
            parse(text)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"a":1,"a":', b"[1,[],"])
def test_the_limit_of_levels_holds_where_python_has_none(opening: bytes) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # newer versions have none for JSON
    try:
        closing = b"]" if opening.startswith(b"[") else b"}"
        text = opening * MAX_DEPTH + b"NaN" + closing * MAX_DEPTH
        assert parse(text)
        with pytest.raises(InvalidArgumentError, match=r"JSON nesting depth exceeds maximum allowed limit \(1024\)"):
            parse(opening + text + closing)
        wide = b"[" + b"[[]]," * (2 * MAX_DEPTH) + b"NaN]"
        assert len(parse(wide)) == 2 * MAX_DEPTH + 1
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("element", [b"1", b'""', b"[]", b"[1,2]"])
def test_a_text_holds_no_more_values_than_the_limit(element: bytes) -> None:
    text = b"[" + (element + b",") * (MAX_VALUES + 1) + b"0]"
    with pytest.raises(InvalidArgumentError, match="more than 4194304 values, which is the limit"):
        parse(text)


def test_what_takes_long_is_told_where_it_must_be_quick() -> None:
    slow = b"[" + b'{"":0},' * 1000 + b"NaN]"
    assert len(parse(slow)) == 1001
    with pytest.raises(SlowTextError):
        parse(slow, is_quick=True)
    assert len(parse(b"[NaN," + b"1," * 1000 + b"1]", is_quick=True)) == 1002


def test_integers_beyond_64_bits_are_doubles() -> None:
    for text in (b"[18446744073709551616]", b"[18446744073709551616,NaN]"):
        assert type(parse(text)[0]) is float


def test_a_long_text_with_an_error_is_refused_without_the_slow_reader() -> None:
    with pytest.raises(InternalError, match=r"Invalid value\. at \d+$"):
        parse(b"[" + b"1," * (3 << 20) + b"x]")


@given(JSON_VALUES)
def test_every_reader_gives_what_the_standard_library_gives(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    assert read(text) == json.loads(text)
    assert parse(text) == json.loads(text)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:0123456789.eE+-\\untrflaIiyN \xff', max_size=40))
def test_arbitrary_bytes_raise_nothing_but_a_serving_error(text: bytes | str) -> None:
    raw = text.encode("latin-1") if isinstance(text, str) else text
    try:
        parse(raw)
    except ServingError:
        pass


@given(st.text(alphabet='{}[]",:0123456789.eE+-\\untrflas ', max_size=30))
def test_the_exact_reader_accepts_what_the_fast_one_accepts(text: str) -> None:
    raw = text.encode()
    try:
        expected = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return
    assert read(raw) == json.loads(raw) or expected == read(raw)


@given(st.text(), st.floats() | st.integers() | st.booleans())
@example("", 2**64)
@example("", -(2**63) - 1)
def test_scalars_survive_a_round_trip(text: str, number: float) -> None:
    assert json.loads(encode_string(text)) == text
    decoded = json.loads(encode_scalar(number))
    assert decoded == number or (math.isnan(number) and math.isnan(decoded))
    assert json.loads(encode_error(text)) == {"error": text}


def test_syntax_error_carries_its_parts() -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        read(b"[1 2]")
    assert caught.value.offset == 3
