"""Bodies with binary data: dealing it out, raw requests, remembered documents, and encoded answers."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.request import RegionPlace
from trireme.core.tensor import Tensor
from trireme.protocol.v2.binary import (
    COPY_LIMIT_BYTES,
    InferDecoder,
    InferEncoder,
    encode_parameters,
    split_body,
    take_raw_tensor,
    take_tensors,
)
from trireme.protocol.v2.json_document import InferDocument, OutputEntry

MODEL = ("m", "1")


def body_of(sizes: list[int], request_id: str | None = None) -> tuple[bytes, int]:
    """A body with UINT8 inputs of these sizes and the length of its document."""
    inputs = [
        {"name": f"i{n}", "shape": [size], "datatype": "UINT8", "parameters": {"binary_data_size": size}}
        for n, size in enumerate(sizes)
    ]
    document: dict[str, Any] = {"inputs": inputs} if request_id is None else {"id": request_id, "inputs": inputs}
    text = json.dumps(document, separators=(",", ":")).encode()
    return text + b"".join(bytes([n % 256]) * size for n, size in enumerate(sizes)), len(text)


def decode(decoder: InferDecoder, body: Any, length: int | None) -> tuple[str, dict[str, Tensor]]:
    text, offset = split_body(body, length)
    document, request_id = decoder.decode(text, length is None)
    return request_id, take_tensors(document, body, offset, "m")


def test_binary_data_is_dealt_out_in_the_order_of_the_inputs() -> None:
    body, length = body_of([2, 0, COPY_LIMIT_BYTES + 1])
    _, tensors = decode(InferDecoder(1 << 20), body, length)
    assert [bytes(tensor.data) for tensor in tensors.values()] == [b"\0\0", b"", b"\2" * (COPY_LIMIT_BYTES + 1)]
    large = tensors["i2"].data
    assert isinstance(large, memoryview)
    assert large.obj is body


def in_region(name: str, size_bytes: int, offset: int = 0) -> dict[str, Any]:
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": size_bytes, "shared_memory_offset": offset}
    return {"name": name, "shape": [size_bytes], "datatype": "UINT8", "parameters": parameters}


def shared(region: str, offset: int, size_bytes: int) -> bytes:
    """What a region holds that consists of its name."""
    return (region.encode() * (offset + size_bytes))[offset : offset + size_bytes]


def test_inputs_in_regions_take_no_binary_data() -> None:
    body, length = body_of([2, 3])
    inputs = json.loads(body[:length])["inputs"]
    document = {"inputs": [in_region("a", 4), inputs[0], in_region("b", 5, 6), inputs[1]]}
    text = json.dumps(document).encode()
    found, _ = InferDecoder(1 << 20).decode(text, False)
    assert found.has_regions
    tensors = take_tensors(found, text + body[length:], len(text), "m", shared)
    assert {name: bytes(tensor.data) for name, tensor in tensors.items()} == {
        "a": b"rrrr",
        "i0": b"\0\0",
        "b": b"rrrrr",
        "i1": b"\1\1\1",
    }


def test_documents_with_all_data_in_regions_are_remembered_with_or_without_a_header_length() -> None:
    decoder = InferDecoder(1 << 20, has_regions=True)
    for request_id in (b"1", b"2"):
        text = b'{"id":"%b","inputs":%b}' % (request_id, json.dumps([in_region("a", 4)]).encode())
        document, found_id = decoder.decode(text, True)
        assert (found_id, decoder.decode(text, True)[0]) == (request_id.decode(), document)


def test_an_output_in_a_region_is_described_and_not_sent() -> None:
    document = InferDocument()
    document.outputs = {"s": OutputEntry(False, 0, RegionPlace("r", 0, 8)), "b": OutputEntry(True, 0)}
    outputs = [Tensor("s", "INT8", [1, 2], b""), Tensor("b", "INT8", (1,), b"\1")]
    text, buffers = InferEncoder().encode(MODEL, "", outputs, None, document)
    assert json.loads(text)["outputs"] == [
        {"name": "s", "datatype": "INT8", "shape": [1, 2]},
        {"name": "b", "datatype": "INT8", "shape": [1], "parameters": {"binary_data_size": 1}},
    ]
    assert buffers == [b"\1"]


def test_missing_and_leftover_bytes_are_errors() -> None:
    body, length = body_of([8])
    with pytest.raises(InvalidArgumentError) as caught:
        decode(InferDecoder(1 << 20), body[:-4], length)
    assert caught.value.message == "unexpected size for input 'i0', expecting 4 additional bytes for model 'm'"
    with pytest.raises(InvalidArgumentError) as caught:
        decode(InferDecoder(1 << 20), body + b"x", length)
    assert caught.value.message == "unexpected additional input data for model 'm'"


@pytest.mark.parametrize("length", [-1, 3])
def test_a_document_length_outside_the_body_is_an_error(length: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        split_body(b"{}", length)
    assert caught.value.message == f"inference header size should be in range (0, 2), got: {length}"


def test_equal_documents_are_decoded_once_whatever_their_id() -> None:
    decoder = InferDecoder(1 << 20)
    first, length = body_of([4], "one")
    second, other_length = body_of([4], "another")
    document, request_id = decoder.decode(first[:length], False)
    again, other_id = decoder.decode(second[:other_length], False)
    assert again is document
    assert (request_id, other_id) == ("one", "another")


def test_ids_with_escapes_are_read_as_json() -> None:
    body, length = body_of([1], 'a"\\\n')
    for _ in range(2):
        assert decode(InferDecoder(1 << 20), body, length)[0] == 'a"\\\n'


def test_documents_with_data_are_not_remembered() -> None:
    decoder = InferDecoder(1 << 20)
    text = b'{"inputs":[{"name":"a","shape":[1],"datatype":"INT8","data":[1]}]}'
    assert decoder.decode(text, False)[0] is not decoder.decode(text, False)[0]


@given(st.lists(st.integers(0, 40), max_size=4), st.none() | st.text(max_size=5))
def test_every_body_gives_back_its_tensors(sizes: list[int], request_id: str | None) -> None:
    body, length = body_of(sizes, request_id)
    decoder = InferDecoder(1 << 20)
    for _ in range(2):
        found_id, tensors = decode(decoder, bytearray(body), length)
        assert found_id == (request_id or "")
        assert [bytes(tensor.data) for tensor in tensors.values()] == [
            bytes([n]) * size for n, size in enumerate(sizes)
        ]


@given(st.binary(max_size=80), st.none() | st.integers(-3, 90))
def test_arbitrary_bodies_raise_nothing_but_a_serving_error(body: bytes, length: int | None) -> None:
    decoder = InferDecoder(1 << 20)
    for prefix in (b"", b'{"id":"', b'{"inputs":[{'):
        try:
            decode(decoder, prefix + body, length)
        except ServingError:
            pass


def test_a_raw_request_gets_its_shape_from_its_size() -> None:
    tensor = take_raw_tensor(b"\0" * 24, "m", [("a", "FP32", (2, -1))], is_batched=True)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("a", "FP32", (1, 2, 3))
    text = take_raw_tensor(b"abc", "m", [("a", "BYTES", (1,))], is_batched=False)
    assert (text.shape, text.data) == ((1,), b"\x03\0\0\0abc")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [("a", "FP32", (1,)), ("b", "FP32", (1,))],
            "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'm' model configuration",
        ),
        (
            [("a", "FP32", (-1, -1))],
            "The shape of the raw input 'a' can not be deduced because there are more than one variable-sized "
            "dimension",
        ),
        ([("a", "BYTES", (-1,))], "For BYTE datatype raw input 'a', the model must have input shape [1]"),
    ],
)
def test_raw_requests_that_say_too_little_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        take_raw_tensor(b"\0", "m", inputs, is_batched=False)
    assert caught.value.message == f"[request id: <id_unknown>] {message}"


def test_an_answer_has_its_keys_in_order_and_binary_data_behind_it() -> None:
    document = InferDocument()
    document.outputs = {"b": OutputEntry(True, 0), "j": OutputEntry(False, 0), "e": OutputEntry(True, 0)}
    outputs = [
        Tensor("j", "FP32", [2], struct.pack("<2f", 1, 2.5)),
        Tensor("b", "INT8", (1, 2), b"\1\2"),
        Tensor("e", "INT8", (0,), b""),
        Tensor("unasked", "INT8", (1,), b"\0"),
    ]
    text, buffers = InferEncoder().encode(MODEL, "q", outputs, {"b": True, "i": -4, "f": 1.5, "s": "x"}, document)
    assert text == (
        b'{"id":"q","model_name":"m","model_version":"1","parameters":{"b":true,"i":-4,"f":1.5,"s":"x"},"outputs":['
        b'{"name":"j","datatype":"FP32","shape":[2],"data":[1.0,2.5]},'
        b'{"name":"b","datatype":"INT8","shape":[1,2],"parameters":{"binary_data_size":2}},'
        b'{"name":"e","datatype":"INT8","shape":[0],"parameters":{"binary_data_size":0}}]}'
    )
    assert buffers == [b"\1\2"]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans(), st.text(max_size=4), st.text(min_size=1))
def test_answers_can_be_read_back(shape: list[int], is_binary: bool, request_id: str, name: str) -> None:
    document = InferDocument()
    document.is_binary_by_default = is_binary
    values = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    encoder = InferEncoder()
    for _ in range(2):
        text, buffers = encoder.encode(
            MODEL, request_id, [Tensor(name, "INT32", tuple(shape), values.tobytes())], None, document
        )
        answer = json.loads(text)
        assert answer.get("id", "") == request_id
        (output,) = answer["outputs"]
        assert (output["name"], output["datatype"], output["shape"]) == (name, "INT32", shape)
        if is_binary:
            assert output["parameters"] == {"binary_data_size": values.nbytes}
            assert b"".join(bytes(buffer) for buffer in buffers) == values.tobytes()
        else:
            assert output["data"] == values.ravel().tolist()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"a": 1, "b": True, "c": "x", "d": 1.5}, b'{"a":1,"b":true,"c":"x","d":1.5}'),
        ({"a": float("nan"), "b": float("-inf")}, b'{"a":NaN,"b":-Infinity}'),
        ({"a": "null", "b": 2}, b'{"a":"null","b":2}'),
        ({"a": "\udcff", "\udcfe": 2}, b'{"a":"\xff","\xfe":2}'),
    ],
)
def test_parameters_are_written_whatever_they_hold(parameters, text):
    assert encode_parameters(parameters) == text
