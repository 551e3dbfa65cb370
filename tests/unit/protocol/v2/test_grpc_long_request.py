"""Requests over gRPC with much in them besides raw data: read as the short ones are, and counted before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_grpc import field

from trireme.core.elements import encode_bytes
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.proto import service_pb2
from trireme.protocol.v2 import grpc_long_request
from trireme.protocol.v2.grpc_long_request import (
    MAX_FIELDS,
    check_fields,
    decode_long,
    decode_long_or_refuse,
    peek_names,
)
from trireme.protocol.v2.grpc_request import InferRequestDecoder, LongRequestError


def request(count: int = 1, **contents: Any) -> Any:
    message = service_pb2.ModelInferRequest(model_name="m", id="7")
    for number in range(count):
        entry = message.inputs.add(name=f"IN{number}", datatype="INT32", shape=[1])
        if contents:
            for name, values in contents.items():
                getattr(entry.contents, name).extend(values)
        else:
            message.raw_input_contents.append(b"\1\0\0\0")
    return message


def inputs_of(decoded: tuple[Any, str, list[Any]]) -> dict[str, bytes]:
    template, request_id, raw_contents = decoded
    made = template.request(request_id, raw_contents, lambda _: None, None)
    return {name: bytes(tensor.data) for name, tensor in made.inputs.items()}


@pytest.mark.parametrize(
    "message",
    [
        request(300),
        request(1, int_contents=range(20_000)),
        request(2, int_contents=[-1, 2**31 - 1] * 5000),
        request(300, int_contents=[5]),
    ],
)
def test_what_is_long_is_left_to_a_thread_and_read_there(message: Any) -> None:
    encoded = message.SerializeToString()
    with pytest.raises(LongRequestError):
        InferRequestDecoder().decode(encoded)
    decoded = decode_long(encoded)
    assert (decoded[0].model_name, decoded[1]) == ("m", "7")
    found = inputs_of(decoded)
    assert list(found) == [entry.name for entry in message.inputs]
    expected = b"".join(value.to_bytes(4, "little", signed=True) for value in message.inputs[0].contents.int_contents)
    assert found["IN0"] == (expected or b"\1\0\0\0")


def test_long_raw_data_alone_is_not_long() -> None:
    message = request()
    message.raw_input_contents[0] = bytes(1 << 20)
    assert inputs_of(InferRequestDecoder().decode(message.SerializeToString())) == {"IN0": bytes(1 << 20)}


def test_contents_of_the_wrong_type_are_refused_when_the_request_is_made() -> None:
    decoded = decode_long(request(1, fp32_contents=[1.0] * 20_000).SerializeToString())
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="unexpected explicit tensor data for input tensor 'IN0'"):
            inputs_of(decoded)


FIELDS = {
    "inputs": b"\x2a\x00",
    "outputs": b"\x32\x00",
    "parameters": b"\x22\x00",
    "raw contents": b"\x3a\x00",
    "unknown numbers": b"\x78\x00",
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_no_more_fields_than_the_limit_are_built(field: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=f"more than {MAX_FIELDS} fields, which is the limit"):
        decode_long(field * (MAX_FIELDS + 1))


@pytest.mark.parametrize("field", [b"\x18\x01", b"\x22\x00", b"\x0a\x00"], ids=["dims", "parameters", "names"])
def test_fields_inside_an_input_count_as_well(field: bytes) -> None:
    inside = field * MAX_FIELDS
    size = len(inside)
    message = b"\x2a" + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + inside
    with pytest.raises(InvalidArgumentError, match="fields, which is the limit"):
        decode_long(message)


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        ({"bytes_contents": [b""] * 101}, "100 strings"),
        ({"int_contents": [1] * 151}, "150 numbers"),
        ({"uint64_contents": [2**63] * 151}, "150 numbers"),
        ({"fp32_contents": [1.0] * 151}, "150 numbers"),
        ({"fp64_contents": [1.0] * 100, "bool_contents": [True] * 51}, "150 numbers"),
    ],
)
def test_elements_of_typed_contents_are_counted(
    monkeypatch: pytest.MonkeyPatch, contents: dict[str, Any], limit: str
) -> None:
    monkeypatch.setattr(grpc_long_request, "MAX_STRINGS", 100)
    monkeypatch.setattr(grpc_long_request, "MAX_NUMBERS", 150)
    refused = decode_long_or_refuse(request(1, **contents).SerializeToString())
    assert isinstance(refused, ServingError)
    assert f"more than {limit} in typed contents, which is the limit" in refused.message
    name = next(iter(contents))
    fewer = {name: contents[name][:100]}
    assert not isinstance(decode_long_or_refuse(request(1, **fewer).SerializeToString()), ServingError)


@pytest.mark.parametrize("message", [b"\x2a", b"\x2a\x05x", b"\x0b\x0c" * 500, b"\x2a\x03\x22\x05x", b"\xff" * 30])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(InternalError, match="Unable to parse request"):
        decode_long(message)


def test_the_messages_of_other_calls_are_counted_too() -> None:
    check_fields(b"\x0a\x00" * MAX_FIELDS)
    with pytest.raises(InvalidArgumentError, match="fields, which is the limit"):
        check_fields(b"\x0a\x00" * (MAX_FIELDS + 1))
    with pytest.raises(InternalError):
        check_fields(b"\x0a\x05")


CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        "bool_contents": st.lists(st.booleans(), max_size=9),
        "int_contents": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9),
        "int64_contents": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9),
        "uint64_contents": st.lists(st.integers(0, 2**64 - 1), max_size=9),
        "fp32_contents": st.lists(st.sampled_from([0.0, 1.5, -2.0]), max_size=9),
        "fp64_contents": st.lists(st.floats(allow_nan=False), max_size=9),
        "bytes_contents": st.lists(st.binary(max_size=200), max_size=9),
    },
)


def data_or_error(decoded: Any) -> dict[str, bytes] | str:
    try:
        return inputs_of(decoded)
    except ServingError as error:
        return error.message


@given(CONTENTS, st.sampled_from(["BOOL", "INT32", "INT64", "UINT64", "FP32", "FP64", "BYTES"]), st.integers(1, 60))
def test_contents_are_the_same_in_pieces(contents: dict[str, Any], datatype: str, piece: int) -> None:
    message = request(2, **contents) if any(contents.values()) else request(2)
    for entry in message.inputs:
        entry.datatype = datatype
    encoded = message.SerializeToString()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpc_long_request, "_PIECE_BYTES", piece)
        assert data_or_error(decode_long(encoded)) == data_or_error(InferRequestDecoder().decode(encoded))


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_contents_in_several_fields_are_joined_in_their_order(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(grpc_long_request, "_PIECE_BYTES", piece)
    packed, unpacked, empty = b"\x2a\x05\x12\x03\x01\xac\x02", b"\x2a\x04\x10\x07\x10\x08", b"\x2a\x00"
    entry = empty + packed + b"\x0a\x02IN" + unpacked + b"\x12\x05INT32" + packed
    encoded = b"\x0a\x01m" + b"\x2a" + bytes((len(entry),)) + entry
    assert inputs_of(decode_long(encoded)) == inputs_of(InferRequestDecoder().decode(encoded))
    assert inputs_of(decode_long(encoded)) == {"IN": np.array([1, 300, 7, 8, 1, 300], np.int32).tobytes()}


def test_no_more_than_a_piece_of_contents_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = grpc_long_request.service_pb2.InferTensorContents.FromString

    class Recorded:
        @staticmethod
        def FromString(data: bytes) -> Any:
            sizes.append(len(data))
            return read(data)

    recording = SimpleNamespace(InferTensorContents=Recorded)
    monkeypatch.setattr(grpc_long_request, "service_pb2", recording)
    for contents in ({"int_contents": [70_000] * 100_000}, {"bytes_contents": [b"x"] * 100_000}):
        sizes.clear()
        decode_long(request(1, **contents).SerializeToString())
        assert sum(sizes) > 200_000
        assert max(sizes) < (64 << 10) + 20


def test_a_long_string_and_long_packed_floats_are_taken_as_they_are() -> None:
    text, floats = b"x" * 300_000, [1.5] * 100_000
    message = request(1, bytes_contents=[b"a", text, b"b"])
    message.inputs[0].datatype = "BYTES"
    assert inputs_of(decode_long(message.SerializeToString())) == {"IN0": encode_bytes([b"a", text, b"b"])}
    message = request(1, fp32_contents=floats)
    message.inputs[0].datatype = "FP32"
    assert inputs_of(decode_long(message.SerializeToString())) == {"IN0": np.array(floats, np.float32).tobytes()}


@pytest.mark.parametrize("tail", [b"\xff" * 100_000, b"\x01" * 70_000 + b"\x80"])
@pytest.mark.parametrize("number", [2, 6])
def test_packed_numbers_that_do_not_end_are_no_message(tail: bytes, number: int) -> None:
    contents = field(number, tail + b"\x80" * (len(tail) % 4 == 0))
    with pytest.raises(InternalError, match="Unable to parse request"):
        decode_long(field(1, b"m") + field(5, field(1, b"IN") + field(2, b"INT32") + field(5, contents)))


def test_packed_dimensions_count_as_fields() -> None:
    shape = field(3, b"\x01" * (MAX_FIELDS + 1))
    with pytest.raises(InvalidArgumentError, match=r"more than 16384 fields, .* dimensions and raw contents together"):
        decode_long(field(1, b"m") + field(5, field(1, b"IN") + shape))


@pytest.mark.parametrize(
    "message",
    [
        field(1, b"m" * 65_537),
        field(1, b"m") + field(5, field(1, b"n" * 65_537)),
        field(1, b"m") + field(5, field(2, b"n" * 65_537)),
        field(1, b"m") + field(6, field(1, b"n" * 65_537)),
    ],
)
def test_names_that_nothing_can_have_are_refused_over_grpc(message: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="has 65537 bytes; the limit is 65536"):
        decode_long(message)


def test_what_is_no_tensor_data_has_a_limit() -> None:
    parameter = field(4, field(1, b"k") + field(2, field(3, b"x" * (9 << 20))))
    assert decode_long(field(1, b"m") + parameter)[0].model_name == "m"
    with pytest.raises(InvalidArgumentError, match="more than 16777216 bytes besides tensor data"):
        decode_long(field(1, b"m") + parameter + parameter)


@pytest.mark.parametrize("decode", [decode_long, InferRequestDecoder().decode])
def test_an_id_without_end_is_not_read(decode: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="the id of the request has 300000 bytes, more than the 262144"):
        decode(field(1, b"m") + field(3, b"x" * 300_000))


def test_a_parameter_of_an_output_is_no_name() -> None:
    message = request(300)
    message.outputs.add(name="OUT").parameters["key"].string_param = "x" * (grpc_long_request.MAX_NAME_BYTES + 1)
    assert decode_long(message.SerializeToString())[0].model_name == "m"
    message.outputs.add(name="x" * (grpc_long_request.MAX_NAME_BYTES + 1))
    with pytest.raises(InvalidArgumentError, match="a name or datatype of the request has 65537 bytes"):
        decode_long(message.SerializeToString())


def test_numbers_with_a_tag_each_have_a_limit_of_their_own() -> None:
    def message(count: int) -> bytes:
        entry = field(1, b"IN0") + field(2, b"INT32") + field(5, b"\x10\x01" * count)
        return field(1, b"m") + field(5, entry)

    assert len(inputs_of(decode_long(message(100_000)))["IN0"]) == 400_000
    with pytest.raises(InvalidArgumentError, match="more than 131072 numbers with a tag each"):
        decode_long(message(131_073))


def test_names_in_front_of_a_message_are_peeked_at() -> None:
    message = service_pb2.ModelInferRequest(model_name="a", model_version="2", id="7")
    message.inputs.add(name="IN")
    assert peek_names(message.SerializeToString()) == ("a", "2", "7")
    assert peek_names(b"\x0a\x01a") == ("a", "", "")


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x0a\x01a\x0a\x01b", id="two models, of which protobuf takes the last"),
        pytest.param(b"\x0a\x00\x0a\x01b", id="two models, the first without a name"),
        pytest.param(b"\x0a\x01a\x12\x011\x12\x012", id="two versions"),
        pytest.param(b"\x0a\x01a\x1a\x011\x1a\x012", id="two ids"),
        pytest.param(b"\x0a\x01a\x12" + b"\x88\x27" + b"1" * 5000, id="a long version"),
        pytest.param(b"\x12\x011", id="no model"),
        pytest.param(b"\x0a\x01\xff", id="not UTF-8"),
        pytest.param(b"\x0a\x05a", id="cut short"),
    ],
)
def test_what_is_not_named_once_in_front_is_read_as_usual(message: bytes) -> None:
    assert peek_names(message) is None
