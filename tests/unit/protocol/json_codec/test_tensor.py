"""Tensor elements in JSON: each datatype's rules, nesting, counts, and the literals beyond JSON."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.datatype import NUMPY_DTYPE
from trireme.core.elements import decode_bytes, encode_bytes
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.tensor import Tensor
from trireme.protocol.json_codec.tensor import check_json_input, decode_elements, encode_elements
from trireme.protocol.json_codec.text import parse

INTEGERS = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]
DATATYPES = [*INTEGERS, "BOOL", "FP32", "FP64", "BYTES"]


def wire(datatype: str, values: list[Any]) -> bytes:
    return encode_bytes(values) if datatype == "BYTES" else np.array(values, NUMPY_DTYPE[datatype]).tobytes()


@pytest.mark.parametrize(
    ("datatype", "data", "message"),
    [
        ("BOOL", [1], "Unable to parse 'data': attempt to access JSON non-boolean as boolean"),
        ("UINT8", [-1], "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("UINT8", [1.0], "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("UINT64", [True], "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("INT32", [1.0], "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
        ("INT32", ["1"], "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
        ("INT64", [2**63], "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
        ("INT8", [2**63], "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
        ("FP32", ["x"], "Unable to parse 'data': attempt to access JSON non-number as double"),
        ("FP32", [None], "Unable to parse 'data': attempt to access JSON non-number as double"),
        ("FP32", [True], "Unable to parse 'data': attempt to access JSON non-number as double"),
        ("FP64", [{}], "Unable to parse 'data': attempt to access JSON non-number as double"),
        ("BYTES", [1], "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
        ("FP32", "x", "Unable to parse 'data': attempt to access JSON non-array as array"),
        ("FP32", {}, "Unable to parse 'data': attempt to access JSON non-array as array"),
    ],
)
def test_elements_of_the_wrong_kind_are_refused(datatype: str, data: Any, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        decode_elements(datatype, data, 1)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("datatype", "given_values", "kept"),
    [("UINT8", [300, 255], [44, 255]), ("INT8", [300, -129], [44, 127]), ("INT32", [2**40 + 5], [5])],
)
def test_integers_too_wide_lose_their_upper_bytes(datatype: str, given_values: list[int], kept: list[int]) -> None:
    assert decode_elements(datatype, given_values, len(kept)) == wire(datatype, kept)


def test_nested_lists_are_flattened_row_by_row_without_looking_at_the_shape() -> None:
    assert decode_elements("FP32", [[1], 2, [[3, 4]]], 4) == struct.pack("<4f", 1, 2, 3, 4)


def test_nesting_up_to_a_hundred_is_accepted_and_no_more() -> None:
    data: Any = 1.0
    for _ in range(100):
        data = [data]
    assert decode_elements("FP32", data, 1) == struct.pack("<f", 1)
    with pytest.raises(InvalidArgumentError) as caught:
        decode_elements("FP32", [data], 1)
    assert caught.value.message == "JSON nesting depth exceeds maximum allowed limit (100)"


def test_the_number_of_elements_has_to_fit() -> None:
    with pytest.raises(InternalError) as caught:
        decode_elements("FP32", [1, 2, 3], 2)
    assert caught.value.message == "Unable to parse 'data': Shape does not match true shape of 'data' field"
    with pytest.raises(InternalError) as caught:
        decode_elements("FP32", [1], 2)
    assert caught.value.message == "Failed to parse 'data' field: shape does not match true shape"


def test_an_empty_tensor_needs_no_elements() -> None:
    assert decode_elements("FP32", [], 0) == b""
    assert encode_elements(Tensor("a", "FP32", (0,), b"")) == b"[]"


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_has_no_json_form(datatype: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_json_input("a", datatype)
    assert caught.value.message == (
        f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input a"
    )
    with pytest.raises(InvalidArgumentError) as caught:
        encode_elements(Tensor("a", datatype, (1,), b"\0\0"))
    assert caught.value.message == (
        f"sending {datatype} data via JSON is not supported. Please use the binary data format for output"
    )


def test_numbers_that_are_not_finite_are_written_as_literals() -> None:
    data = struct.pack("<4f", math.nan, math.inf, -math.inf, 0.1)
    assert encode_elements(Tensor("a", "FP32", (4,), data)) == b"[NaN,Infinity,-Infinity,0.10000000149011612]"


def test_strings_that_are_not_utf8_are_written_as_they_are() -> None:
    data = encode_bytes([b'\xff\x00\x1f"\\/\x7f', "é".encode()])
    expected = b'["\xff\\u0000\\u001F\\"\\\\/\x7f","' + "é".encode() + b'"]'
    assert encode_elements(Tensor("a", "BYTES", (2,), data)) == expected


def test_an_output_that_is_cut_short_is_an_error() -> None:
    for datatype, data in (("FP32", b"\0\0\0"), ("BYTES", b"\x09\0\0\0ab")):
        with pytest.raises(InternalError, match="output 'a'"):
            encode_elements(Tensor("a", datatype, (1,), data))


@given(st.data())
def test_tensors_survive_a_round_trip(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(DATATYPES))
    if datatype in INTEGERS:
        info = np.iinfo(NUMPY_DTYPE[datatype])
        elements = st.integers(int(info.min), int(info.max))
    elif datatype == "BOOL":
        elements = st.booleans()
    elif datatype == "BYTES":
        elements = st.binary()
    else:
        elements = st.floats(width=32)
    values = data.draw(st.lists(elements))
    encoded = wire(datatype, values)
    text = encode_elements(Tensor("a", datatype, (len(values),), memoryview(encoded)))
    decoded = decode_elements(datatype, parse(text), len(values))
    if datatype.startswith("FP"):
        dtype = NUMPY_DTYPE[datatype]
        np.testing.assert_array_equal(np.frombuffer(decoded, dtype), np.frombuffer(encoded, dtype))
    else:
        assert decoded == encoded
        assert datatype != "BYTES" or decode_bytes(decoded) == values


@given(
    st.sampled_from(DATATYPES),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s)),
    st.integers(0, 5),
)
def test_any_json_raises_nothing_but_a_serving_error(datatype: str, value: Any, count: int) -> None:
    try:
        text = json.dumps(value).encode()
        decode_elements(datatype, parse(text), count)
    except ServingError:
        pass
