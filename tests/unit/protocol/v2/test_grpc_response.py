"""Responses: what is written by hand is what protobuf writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.proto import service_pb2
from trireme.protocol.v2.grpc_response import InferResponseEncoder, encode_parameters, varint

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=150)
values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), names)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 2**40), max_size=4))
    data = draw(st.one_of(st.binary(max_size=300), st.integers(0, 40_000).map(bytes)))
    is_view = draw(st.booleans())
    return Tensor(
        draw(names), "FP32", tuple(shape) if draw(st.booleans()) else shape, memoryview(data) if is_view else data
    )


def request_of(model: str, version: str, request_id: str, served: str = "1") -> InferenceRequest:
    request = InferenceRequest(model, version, request_id, {}, lambda response: None)
    request.served_version = served
    return request


def expected(model: str, version: str, request_id: str, response: InferenceResponse):
    message = service_pb2.ModelInferResponse(model_name=model, model_version=version, id=request_id)
    for tensor in response.outputs:
        message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.raw_output_contents.append(bytes(tensor.data))
    return message


@given(names, names, names, st.lists(tensors(), max_size=3), st.dictionaries(names, values, max_size=3))
def test_unary_responses_equal_protobuf(model, served, request_id, outputs, parameters) -> None:
    encoder = InferResponseEncoder()
    response = InferenceResponse(outputs, parameters=parameters or None)
    for _ in range(2):
        pieces, size = encoder.encode(request_of(model, "", request_id, served), response)
        wire = b"".join(pieces)
        assert len(wire) == size
        message = expected(model, served, request_id, response)
        message.MergeFromString(encode_parameters(parameters))
        assert service_pb2.ModelInferResponse.FromString(wire) == message


@given(names, names, st.lists(tensors(), max_size=2), st.booleans())
def test_streamed_responses_say_whether_they_are_final(model, request_id, outputs, is_final) -> None:
    response = InferenceResponse(outputs, is_final=is_final)
    pieces, size = InferResponseEncoder().encode_in_stream(request_of(model, "", request_id), response)
    wire = b"".join(pieces)
    assert len(wire) == size
    message = service_pb2.ModelStreamInferResponse(infer_response=expected(model, "1", request_id, response))
    message.infer_response.parameters["triton_final_response"].bool_param = is_final
    assert service_pb2.ModelStreamInferResponse.FromString(wire) == message


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 2**70])
def test_a_number_that_no_parameter_can_be_is_an_error_and_not_another_number(number: int) -> None:
    with pytest.raises(InternalError, match="'p' is a number of more than 64 bits"):
        encode_parameters({"p": number})


def test_parameters_that_are_no_utf_8_are_given_as_near_as_can_be() -> None:
    message = service_pb2.ModelInferResponse.FromString(encode_parameters({"k\udcff": "v\ud800é"}))
    assert {key: value.string_param for key, value in message.parameters.items()} == {"k?": "v?é"}


def parse(wire: bytes):
    return service_pb2.ModelStreamInferResponse.FromString(wire)


def test_errors_and_empty_ends_name_the_version_as_asked_for() -> None:
    encoder, request = InferResponseEncoder(), request_of("m", "3", "id")
    final = parse(encoder.encode_empty_final(request))
    assert (final.infer_response.model_version, final.infer_response.id) == ("3", "id")
    assert final.infer_response.parameters["triton_final_response"].bool_param
    failed = parse(encoder.encode_execution_error(request, "é wrong", False))
    assert failed.error_message == "é wrong"
    assert failed.infer_response.model_version == "3"
    assert failed.infer_response.parameters["triton_final_response"].WhichOneof("parameter_choice") == "bool_param"
    refusal = parse(encoder.encode_refusal("id", "no"))
    assert refusal == service_pb2.ModelStreamInferResponse(error_message="no", infer_response={"id": "id"})
    assert parse(encoder.encode_refusal("", "no")).HasField("infer_response")


def test_large_outputs_are_passed_on_without_a_copy() -> None:
    data = memoryview(bytes(50_000))
    pieces, _ = InferResponseEncoder().encode(
        request_of("m", "", ""), InferenceResponse([Tensor("o", "UINT8", (50_000,), data)])
    )
    assert any(piece is data for piece in pieces)


def test_caches_are_bounded() -> None:
    encoder = InferResponseEncoder()
    for size in range(6000):
        encoder.encode(request_of(f"m{size}", "", ""), InferenceResponse([Tensor("o", "UINT8", (size,), b"")]))
    assert len(encoder._outputs) <= 4096
    assert len(encoder._models) <= 4096


@given(st.integers(0, 2**64 - 1))
def test_varints_are_as_protobuf_writes_them(value) -> None:
    wire = service_pb2.StatisticDuration(count=value).SerializeToString()
    assert wire == (b"\x08" + varint(value) if value else b"")
