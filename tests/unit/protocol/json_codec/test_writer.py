"""Parsed JSON that is written again."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import InvalidArgumentError
from trireme.protocol.json_codec import writer
from trireme.protocol.json_codec.text import parse
from trireme.protocol.json_codec.writer import encode_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\udc80", max_size=3), inner, max_size=4),
)


@given(VALUES)
def test_values_mean_the_same_whichever_way_they_are_written(value: Any) -> None:
    for written in (value, ["\udcff", value], {"\udcff": value}):
        assert json.loads(encode_value("x", written)) == written


def test_bytes_that_are_not_text_come_back_as_they_went() -> None:
    assert encode_value("x", parse(b'{"a":["b\xffc"],"d":{}}')) == b'{"a":["b\\udcffc"],"d":{}}'


@pytest.mark.parametrize("inner", [[], ["\udcff"], {"\udcff": 1}])
def test_levels_are_limited(inner: Any) -> None:
    deep = inner
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(InvalidArgumentError, match="'messages' is nested too deeply: it has more than 254 levels"):
        encode_value("messages", deep)


@pytest.mark.parametrize("scalar", [1, "\udcff", math.nan])
def test_as_many_levels_are_written_as_the_limit_says(scalar: Any) -> None:
    deep = scalar
    for _ in range(writer.MAX_LEVELS):
        deep = [deep]
    assert encode_value("x", deep) == b"[" * 254 + json.dumps(scalar).encode() + b"]" * 254
    with pytest.raises(InvalidArgumentError, match="'x' is nested too deeply: it has more than 254 levels"):
        encode_value("x", {"a": deep})


def test_the_depth_of_a_plain_value_is_told_however_many_stand_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_PIECES", 100)
    deep: list[Any] = []
    for _ in range(writer.MAX_LEVELS):
        deep = [deep]
    with pytest.raises(InvalidArgumentError, match="'x' is nested too deeply: it has more than 254 levels"):
        encode_value("x", [*[1] * 500, deep])


@pytest.mark.parametrize(
    "text",
    [b"NaN", b"[Infinity,null]", b'{"a":[{"b":-Infinity}],"c":"null","d":1.5}', b"[[],[[1,NaN]]]", b"[null,1.0]"],
)
def test_numbers_that_are_not_finite_stay_what_they_are(text: bytes) -> None:
    assert encode_value("x", parse(text)) == text


def test_many_values_beside_a_number_that_is_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_PIECES", 100)
    assert json.loads(encode_value("x", [None] * 500)) == [None] * 500
    with pytest.raises(InvalidArgumentError, match="'x' holds NaN or Infinity, and more than 100 values"):
        encode_value("x", [*[1] * 500, math.nan])


def test_what_is_written_one_by_one_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_PIECES", 100)
    assert len(encode_value("x", [1] * 500)) == 1001
    for values in (["\udcff", *[1] * 500], [{"\udcff": []}] * 200):
        with pytest.raises(InvalidArgumentError, match="'x' holds bytes that are not UTF-8, and more than 100 values"):
            encode_value("x", values)
