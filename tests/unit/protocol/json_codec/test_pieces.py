"""Long JSON in pieces: what is read and converted piece by piece is what is read and converted at once."""

from __future__ import annotations

import gc
import json
import math
import re
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.elements import count_strings, encode_bytes
from trireme.core.errors import InternalError, InvalidArgumentError
from trireme.core.tensor import CountedTensor, Tensor
from trireme.protocol.json_codec import reader as json_reader
from trireme.protocol.json_codec import tensor as json_tensor
from trireme.protocol.json_codec import text as json_text
from trireme.protocol.json_codec.tensor import decode_elements, encode_elements
from trireme.protocol.v2.json_document import decode_document

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.floats(allow_nan=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=60)


@given(VALUES, st.sampled_from([(",", ":"), (" , ", " : ")]), st.booleans())
def test_every_value_is_read_as_it_was_written(value: Any, separators: tuple[str, str], is_ascii: bool) -> None:
    text = json.dumps(value, separators=separators, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert json_reader.read(text) == value


@given(st.lists(st.integers(-5, 5) | st.lists(st.integers(0, 9)) | st.just("],["), max_size=40), st.integers(1, 40))
def test_the_size_of_a_piece_does_not_matter(value: list[Any], piece: int) -> None:
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_reader, "_RUN_BYTES", piece)
        assert json_reader.read(text) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"[1,2,,3]", "Invalid value. at 5"),
        (b"[1,2,3", "Missing a comma or ']' after an array element. at 6"),
        (b"[1,2,]", "Invalid value. at 5"),
        (b"[1,02,3]", "Missing a comma or ']' after an array element. at 4"),
        (b'["a","b\\q","c"]', "Invalid escape character in string. at 7"),
        (b"[[1,2],[3,x],[4]]", "Invalid value. at 10"),
        (b"[1,1e999,2]", "Number too big to be stored in double. at 3"),
    ],
)
def test_errors_in_a_run_keep_their_place(text: bytes, error: str) -> None:
    with pytest.raises(json_reader.JsonSyntaxError, match=re.escape(error)):
        json_reader.read(text)


def test_literals_beyond_the_standard_are_read_in_runs() -> None:
    nan, infinite, one = json_reader.read(b"[NaN,-Infinity,1]")
    assert (math.isnan(nan), infinite, one) == (True, -math.inf, 1)


def test_a_text_that_is_too_complex_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "MAX_STEPS", 100)
    assert json_reader.read(b"[" + b"1," * 10_000 + b"1]") == [1] * 10_001
    for text in (b"[" + b"{}," * 100 + b"1]", b"[" * 200, b'{"a":' * 200):
        with pytest.raises(json_reader.JsonLimitError, match="more than 100 members, containers and unusual values"):
            json_reader.read(text)


def test_an_object_with_too_many_members_is_not_read_to_its_end() -> None:
    most = b",".join(b'"k%d":1' % number for number in range(json_reader.MAX_MEMBERS))
    assert len(json_reader.read(b"{%b}" % most)) == json_reader.MAX_MEMBERS
    for further in (b',"k":1}', b',"k":1,' + b"\xff" * 100, b',"k":'):
        with pytest.raises(json_reader.JsonLimitError, match="an object of the JSON text has more than 16384 members"):
            json_reader.read(b'{"parameters":{%b%b' % (most, further))


@pytest.mark.parametrize("size_bytes", [0, json_text.WHOLE_BYTES])
@pytest.mark.parametrize("name", [b"k%d", b"k"])
def test_the_number_of_members_is_limited_in_short_texts_and_in_long_ones(name: bytes, size_bytes: int) -> None:
    names = [name % number if b"%" in name else name for number in range(json_reader.MAX_MEMBERS + 1)]
    for last in (b"1", b"NaN"):
        text = b'{"a":{%b,"z":%b}}' % (b",".join(b'"%b":1' % name for name in names), last)
        with pytest.raises(InvalidArgumentError, match="an object of the JSON text has more than 16384 members"):
            json_text.parse(text + b" " * size_bytes)


def test_lists_count_more_than_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "MAX_VALUES", 1000)
    assert len(json_reader.read(b"[%b]" % b",".join([b"1"] * 900))) == 900
    assert len(json_reader.read(b"[%b]" % b",".join([b"[1]"] * 190))) == 190
    with pytest.raises(json_reader.JsonLimitError, match=r"more than 1000 values, .* a list counts as 4 more: send"):
        json_reader.read(b"[%b]" % b",".join([b"[1]"] * 260))


@pytest.mark.parametrize("unusual", [b"NaN", b"-Infinity", b'"\xff"', b"123456789012345678901"])
def test_values_beyond_the_standard_are_no_steps_in_a_run(unusual: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "MAX_STEPS", 20)
    found = json_reader.read(b"[%b,[%b],1]" % (b",".join([unusual] * 5000), unusual))
    monkeypatch.undo()
    one = json_reader.read(b'{"a":%b}' % unusual)["a"]
    assert repr(found) == repr([*[one] * 5000, [one], 1])


def test_long_texts_are_read_in_pieces_and_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "WHOLE_BYTES", 10)
    assert json_text.parse(b'{"a":[1,2,3],"a":4}')["a"] == [1, 2, 3]
    with pytest.raises(InternalError, match=r"Missing a comma or '}' after an object member\. at 12"):
        json_text.parse(b'{"a":[1,2,3]')


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.lists(st.integers(0, 9), max_size=5), max_size=30))
def test_elements_are_the_same_in_pieces(data: list[Any]) -> None:
    flat = [item for entry in data for item in (entry if isinstance(entry, list) else [entry])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_tensor, "SLICE", 3)
        encoded = decode_elements("INT32", data, len(flat))
        assert encoded == struct.pack(f"<{len(flat)}i", *flat)
        patch.setattr(json_tensor, "SLICE", 16)
        assert json.loads(encode_elements(Tensor("OUT", "INT32", (len(flat),), encoded))) == flat


def test_numbers_that_are_not_finite_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_tensor, "SLICE", 8)
    data = struct.pack("<5f", 1, math.nan, 2, math.inf, 3)
    assert encode_elements(Tensor("OUT", "FP32", (5,), data)) == b"[1.0,NaN,2.0,Infinity,3.0]"


def test_what_is_wrong_with_the_wanted_elements_is_told_before_their_number() -> None:
    for data in ([1, "x"], [1, 2.5], [1, 2**70], [[1], "x", 3]):
        with pytest.raises(InternalError, match="Shape does not match true shape"):
            decode_elements("INT32", data, 1)
    with pytest.raises(InternalError, match="non-signed-integer"):
        decode_elements("INT32", ["x", 1], 1)


def test_depth_is_limited_wherever_it_is() -> None:
    deep: Any = 1
    for _ in range(99):
        deep = [deep]
    assert decode_elements("INT8", [1, deep], 2) == b"\1\1"
    for data in ([1, [deep]], [[deep]], [[deep], [1]]):
        with pytest.raises(InvalidArgumentError, match="JSON nesting depth exceeds"):
            decode_elements("INT8", data, 2)


@given(st.lists(st.binary(max_size=9), max_size=9), st.binary(max_size=3))
def test_strings_are_counted_up_to_where_they_are_complete(elements: list[bytes], tail: bytes) -> None:
    data = encode_bytes(elements)
    assert count_strings(data + tail) == (len(elements), len(data))
    tensor = Tensor("IN", "BYTES", (len(elements),), data + tail)
    counted = CountedTensor(tensor, *count_strings(tensor.data))
    assert counted.has_elements(len(elements)) is not bool(tail)
    assert not counted.has_elements(len(elements) + 1)


ELEMENTS = [b"1", b"0.125", b'""', b'"ab"', '"é"'.encode(), b'"\xff"', b'"abcdefghi"', b"[1,2]"]


@pytest.mark.parametrize("element", ELEMENTS)
def test_reading_takes_no_more_memory_than_is_reckoned(element: bytes) -> None:
    count, one_slice_bytes = 200_000, 6 << 20
    datatype = b"BYTES" if b'"' in element else b"FP32"
    shape = count * (1 + element.count(b","))
    text = b'{"inputs":[{"name":"IN","datatype":"%b","shape":[%d],"data":[%b]}]}'
    text %= datatype, shape, b",".join([element] * count)
    text += b" " * (json_text.WHOLE_BYTES - len(text) + 1)
    gc.collect()
    tracemalloc.start()
    try:
        decode_document(text, 1 << 30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < json_text.reading_bytes(text) + one_slice_bytes


STRINGS = st.text(max_size=6) | st.sampled_from(["", "é" * 20, '],["', "\\", "a" * 70])


@given(st.lists(STRINGS | st.lists(STRINGS, max_size=3), min_size=1, max_size=40), st.integers(1, 60), st.booleans())
def test_strings_of_a_long_text_are_the_ones_of_a_short_text(value: list[Any], piece: int, is_ascii: bool) -> None:
    entry = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": value}
    text = json.dumps({"inputs": [entry]}, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        short = decode_document(text.encode(), 1 << 30)
        patch.setattr(json_text, "WHOLE_BYTES", 1)
        patch.setattr(json_reader, "_RUN_BYTES", piece)
        assert decode_document(text.encode(), 1 << 30).inputs[0].data == short.inputs[0].data


@pytest.mark.parametrize("datatype", ["BYTES", "FP32", "INT8", "BOOL"])
@pytest.mark.parametrize("odd", ["1", "true", "null", '"a"', "{}", '[["a"],1]'])
def test_what_is_wrong_among_strings_is_told_as_of_a_short_text(
    monkeypatch: pytest.MonkeyPatch, datatype: str, odd: str
) -> None:
    data = ",".join(['"a"'] * 20 + [odd] + ['"b"'] * 20)
    text = f'{{"inputs":[{{"name":"IN","datatype":"{datatype}","shape":[41],"data":[{data}]}}]}}'.encode()
    seen = []
    for whole_bytes in (1 << 20, 1):
        monkeypatch.setattr(json_text, "WHOLE_BYTES", whole_bytes)
        monkeypatch.setattr(json_reader, "_RUN_BYTES", 30)
        try:
            seen.append(str(decode_document(text, 1 << 30).inputs[0].data))
        except InternalError as error:
            seen.append(error.message)
    assert seen[0] == seen[1]


def test_strings_of_a_long_text_are_never_all_there_as_objects() -> None:
    count = 400_000
    text = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[%d],"data":[%b"a"]}]}' % (count, b'"a",' * (count - 1))
    tracemalloc.start()
    try:
        data = decode_document(text, 1 << 30).inputs[0].data
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data == b"\1\0\0\0a" * count
    assert peak < 10_000_000  # of which four are the result in pieces and as one; the objects would be twenty-five
