"""Requests over gRPC with much in them besides raw data: read as the short ones are, and counted before."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.proto import service_pb2
from trireme.protocol.v2 import grpc_long_request
from trireme.protocol.v2.grpc_long_request import MAX_FIELDS, check_fields, decode_long, decode_long_or_refuse
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
