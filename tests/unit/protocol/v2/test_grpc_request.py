"""Requests: what the hand-written way reads equals what protobuf reads, and what is refused is refused in words."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import ErrorKind, ServingError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.proto import service_pb2
from trireme.protocol.v2.grpc_request import InferRequestDecoder

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@st.composite
def messages(draw):
    message = service_pb2.ModelInferRequest(model_name=draw(names), model_version=draw(names), id=draw(names))
    for name in draw(st.lists(names, max_size=4, unique=True)):
        datatype = draw(st.sampled_from(["FP32", "BYTES", "INT64"]))
        message.inputs.add(name=name, datatype=datatype, shape=draw(st.lists(st.integers(-1, 300), max_size=3)))
        message.raw_input_contents.append(draw(st.binary(max_size=200)))
    for name in draw(st.lists(names, max_size=2)):
        message.outputs.add(name=name)
    for key in draw(st.lists(names.map(lambda name: f"k{name}"), max_size=2)):
        message.parameters[key].int64_param = draw(st.integers(-(2**63), 2**63 - 1))
    return message


def decode(decoder: InferRequestDecoder, wire) -> InferenceRequest:
    template, request_id, raw_contents = decoder.decode(wire)
    return template.request(request_id, raw_contents, lambda response: None, None)


def assert_same(request: InferenceRequest, message) -> None:
    assert (request.model_name, request.model_version, request.id) == (
        message.model_name,
        message.model_version,
        message.id,
    )
    assert list(request.inputs) == [entry.name for entry in message.inputs]
    for tensor, entry, raw in zip(request.inputs.values(), message.inputs, message.raw_input_contents, strict=True):
        assert (tensor.name, tensor.datatype, tuple(tensor.shape), bytes(tensor.data)) == (
            entry.name,
            entry.datatype,
            tuple(entry.shape),
            raw,
        )
    assert request.requested_outputs == tuple(dict.fromkeys(output.name for output in message.outputs))
    assert request.parameters == {key: value.int64_param for key, value in message.parameters.items()}


@given(st.lists(messages(), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_decoding_equals_protobuf_also_from_the_cache(candidates, order) -> None:
    decoder = InferRequestDecoder()
    for pick in order:
        message = candidates[pick % len(candidates)]
        message.id = f"{message.id}{pick}"[:100]
        assert_same(decode(decoder, message.SerializeToString()), message)


@given(messages(), st.randoms())
def test_fields_may_come_in_any_order(message, random) -> None:
    fields = []
    for field, value in message.ListFields():
        part = service_pb2.ModelInferRequest()
        if field.name in ("model_name", "model_version", "id"):
            setattr(part, field.name, value)
            fields.append(part.SerializeToString())
        else:
            getattr(part, field.name).MergeFrom(value)
            fields.append(part.SerializeToString())
    random.shuffle(fields)
    assert_same(decode(InferRequestDecoder(), b"".join(fields)), message)


@given(messages())
def test_unknown_fields_are_ignored(message) -> None:
    unknown = b"\x98\x06\x05" + b"\xa3\x06\x08\x01\xa4\x06"  # a number, and a group, with field numbers of nobody
    wire = message.SerializeToString()
    assert_same(decode(InferRequestDecoder(), wire + unknown), message)
    assert_same(decode(InferRequestDecoder(), unknown + wire), message)


@given(st.binary(max_size=60))
def test_any_bytes_decode_as_protobuf_does_or_are_refused(wire) -> None:
    try:
        service_pb2.ModelInferRequest.FromString(wire)
    except DecodeError:
        with pytest.raises(ServingError, match="Unable to parse request"):
            InferRequestDecoder().decode(wire)
    else:
        InferRequestDecoder().decode(wire)


def test_ids_do_not_spoil_the_cache() -> None:
    decoder = InferRequestDecoder()
    message = request_message()
    templates = set()
    for number in range(50):
        message.id = "x" * number
        templates.add(id(decoder.decode(message.SerializeToString())[0]))
    assert len(templates) == 1


def test_large_data_is_a_slice_of_the_message() -> None:
    message = request_message(bytes(100_000))
    wire = message.SerializeToString()
    tensor = decode(InferRequestDecoder(), wire).inputs["INPUT0"]
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is wire


def test_the_cache_is_bounded() -> None:
    decoder = InferRequestDecoder()
    message = request_message()
    for number in range(3000):
        message.model_name = f"m{number}"
        decoder.decode(message.SerializeToString())
    assert len(decoder._templates) <= 1024


def request_message(data: bytes | None = struct.pack("<4f", 1, 2, 3, 4), datatype: str = "FP32"):
    message = service_pb2.ModelInferRequest(model_name="m")
    message.inputs.add(name="INPUT0", datatype=datatype, shape=[1, 4])
    if data is not None:
        message.raw_input_contents.append(data)
    return message


def refused(message) -> ServingError:
    decoder = InferRequestDecoder()
    wire = message.SerializeToString()
    for _ in range(2):  # the second time from the cache, where there is one
        with pytest.raises(ServingError) as caught:
            decode(decoder, wire)
    return caught.value


def test_missing_and_doubled_data_are_refused() -> None:
    assert refused(request_message(None)).message == (
        "unable to find data for input tensor 'INPUT0' for model 'm' in request."
    )
    both = request_message()
    both.inputs[0].contents.fp32_contents.extend([1, 2])
    assert refused(both).message == (
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'm'"
    )
    twice = request_message()
    twice.inputs.add().CopyFrom(twice.inputs[0])
    twice.raw_input_contents.append(b"1")
    assert refused(twice).message == "[request id: <id_unknown>] input 'INPUT0' already exists in request"


def test_an_unknown_datatype_is_left_to_validation() -> None:
    request = decode(InferRequestDecoder(), request_message(datatype="FOO").SerializeToString())
    assert request.inputs["INPUT0"].datatype == "<invalid>"


TYPED = [
    ("bool_contents", "BOOL", [True, False], np.bool_),
    ("int_contents", "INT8", [-1, 2], np.int8),
    ("int_contents", "INT16", [-300, 2], np.int16),
    ("int_contents", "INT32", [-70000, 2], np.int32),
    ("int64_contents", "INT64", [-(2**40), 2], np.int64),
    ("uint_contents", "UINT8", [255, 2], np.uint8),
    ("uint_contents", "UINT16", [65535, 2], np.uint16),
    ("uint_contents", "UINT32", [2**32 - 1, 2], np.uint32),
    ("uint64_contents", "UINT64", [2**64 - 1, 2], np.uint64),
    ("fp32_contents", "FP32", [0.5, 2], np.float32),
    ("fp64_contents", "FP64", [0.1, 2], np.float64),
]


@pytest.mark.parametrize(("field", "datatype", "values", "dtype"), TYPED)
def test_typed_contents_become_wire_layout(field, datatype, values, dtype) -> None:
    message = request_message(None, datatype)
    getattr(message.inputs[0].contents, field).extend(values)
    tensor = decode(InferRequestDecoder(), message.SerializeToString()).inputs["INPUT0"]
    assert tensor.data == np.array(values, dtype=dtype).tobytes()


def test_integer_contents_keep_their_low_bytes() -> None:
    message = request_message(None, "INT8")
    message.inputs[0].contents.int_contents.extend([300, -129])
    tensor = decode(InferRequestDecoder(), message.SerializeToString()).inputs["INPUT0"]
    assert tensor.data == struct.pack("<2b", 44, 127)


def test_bytes_contents_get_their_lengths_and_empty_contents_are_empty() -> None:
    message = request_message(None, "BYTES")
    message.inputs[0].contents.bytes_contents.extend([b"ab", b""])
    assert decode(InferRequestDecoder(), message.SerializeToString()).inputs["INPUT0"].data == b"\2\0\0\0ab\0\0\0\0"
    message = request_message(None)
    message.inputs[0].contents.SetInParent()
    assert decode(InferRequestDecoder(), message.SerializeToString()).inputs["INPUT0"].data == b""


def test_contents_of_another_type_are_refused() -> None:
    message = request_message(None, "FP16")
    message.inputs[0].contents.fp32_contents.append(1)
    text = "unexpected explicit tensor data for input tensor 'INPUT0' for model 'm'"
    assert refused(message).message == f"{text} of type 'FP32', expected datatype 'FP16'"
    message.inputs[0].contents.int_contents.append(1)
    assert refused(message).message == f"{text} of type 'INT32', expected datatype 'FP16'"


def wrong_type(key: str, expected: str) -> str:
    return f"invalid value type for '{key}' parameter, expected {expected}."


WRONG_PARAMETERS = [
    ("sequence_id", "bool_param", True, wrong_type("sequence_id", "int64_param or string_param")),
    ("sequence_start", "int64_param", 1, wrong_type("sequence_start", "bool_param")),
    ("priority", "string_param", "1", wrong_type("priority", "int64_param or uint64_param")),
    ("priority", "int64_param", -1, "invalid value for 'priority', expected value >= 0."),
    ("timeout", "uint64_param", 1, wrong_type("timeout", "int64_param")),
    ("k", "uint64_param", 1, wrong_type("k", "int64_param, bool_param, or string_param")),
    (
        "triton_x",
        "bool_param",
        True,
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
        "'triton_' are allowed: triton_enable_empty_final_response",
    ),
]


@pytest.mark.parametrize(("key", "field", "value", "text"), WRONG_PARAMETERS)
def test_parameters_of_the_wrong_type_are_refused(key, field, value, text) -> None:
    message = request_message()
    setattr(message.parameters[key], field, value)
    error = refused(message)
    assert (error.kind, error.message) == (ErrorKind.INVALID_ARGUMENT, text)


def test_a_long_string_correlation_id_is_unsupported() -> None:
    message = request_message()
    message.parameters["sequence_id"].string_param = "x" * 129
    error = refused(message)
    assert (error.kind, error.message) == (
        ErrorKind.UNSUPPORTED,
        "string correlation ID cannot be longer than 128 characters",
    )


def test_parameters_reach_the_request() -> None:
    message = request_message()
    message.parameters["sequence_id"].int64_param = 7
    message.parameters["sequence_start"].bool_param = True
    message.parameters["sequence_end"].bool_param = True
    message.parameters["priority"].uint64_param = 3
    message.parameters["timeout"].int64_param = 1000
    message.parameters["temperature"].double_param = 0.5
    message.parameters["headers"].string_param = "x"
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    template, request_id, raw = InferRequestDecoder().decode(message.SerializeToString())
    request = template.request(request_id, raw, lambda response: None, {"x-forwarded": "1"})
    assert request.parameters == {"temperature": 0.5, "headers": "x", "x-forwarded": "1"}
    assert (request.correlation_id, request.priority, request.timeout_us) == (7, 3, 1000)
    assert request.flags == SEQUENCE_START | SEQUENCE_END
    assert template.parameters.wants_empty_final
    again = template.request(request_id, raw, lambda response: None, None)
    assert again.parameters == {"temperature": 0.5, "headers": "x"}


REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
SHARED_MEMORY = [
    ({REGION: "r"}, f"'{SIZE}' must be specified along with '{REGION}' parameter for tensor '{{t}}'"),
    ({SIZE: 8}, f"'{SIZE}' can not be specified without '{REGION}' parameter for tensor '{{t}}'"),
    ({OFFSET: 8}, f"'{OFFSET}' can not be specified without '{REGION}' parameter for tensor '{{t}}'"),
    ({REGION: 1}, f"invalid value type for '{REGION}' parameter for tensor '{{t}}', expected string_param."),
    ({REGION: "r", SIZE: "8"}, f"invalid value type for '{SIZE}' parameter for tensor '{{t}}', expected int64_param."),
]


@pytest.mark.parametrize(("parameters", "text"), SHARED_MEMORY)
@pytest.mark.parametrize("where", ["input", "output"])
def test_wrong_shared_memory_parameters_are_refused(parameters, text, where) -> None:
    message = request_message(None if where == "input" else bytes(16))
    tensor = message.inputs[0] if where == "input" else message.outputs.add(name="OUTPUT0")
    for key, value in parameters.items():
        setattr(tensor.parameters[key], "string_param" if isinstance(value, str) else "int64_param", value)
    error = refused(message)
    assert (error.kind, error.message) == (ErrorKind.INVALID_ARGUMENT, text.format(t=tensor.name))


def place(tensor, region: str, offset: int, size_bytes: int) -> None:
    tensor.parameters[REGION].string_param = region
    tensor.parameters[OFFSET].int64_param = offset
    tensor.parameters[SIZE].int64_param = size_bytes


def shared(region: str, offset: int, size_bytes: int) -> bytes:
    """What a region holds that consists of its name and offset, repeated."""
    return f"{region}{offset} ".encode().ljust(size_bytes, b".")[:size_bytes]


@pytest.mark.parametrize("shared_inputs", [{0}, {1}, {2}, {0, 2}, {0, 1, 2}])
def test_raw_contents_belong_to_the_inputs_that_are_not_in_regions(shared_inputs) -> None:
    message = service_pb2.ModelInferRequest(model_name="m")
    for index in range(3):
        entry = message.inputs.add(name=f"i{index}", datatype="INT8", shape=[8])
        if index in shared_inputs:
            place(entry, "r", index, 8)
        else:
            message.raw_input_contents.append(b"raw%d...." % index)
    decoder = InferRequestDecoder()
    for _ in range(2):
        template, request_id, raw = decoder.decode(message.SerializeToString())
        assert template.has_regions
        request = template.request(request_id, template.with_regions(raw, shared), lambda response: None, None)
        expected = [b"r%d ....." % index if index in shared_inputs else b"raw%d...." % index for index in range(3)]
        assert [bytes(tensor.data) for tensor in request.inputs.values()] == expected


def test_typed_contents_and_regions_go_together() -> None:
    message = service_pb2.ModelInferRequest(model_name="m")
    place(message.inputs.add(name="a", datatype="INT8", shape=[8]), "r", 0, 8)
    message.inputs.add(name="b", datatype="INT32", shape=[1]).contents.int_contents.append(7)
    template, request_id, raw = InferRequestDecoder().decode(message.SerializeToString())
    request = template.request(request_id, template.with_regions(raw, shared), lambda response: None, None)
    assert [bytes(tensor.data) for tensor in request.inputs.values()] == [b"r0 .....", struct.pack("<i", 7)]


def test_an_input_without_data_is_named_also_between_inputs_in_regions() -> None:
    message = service_pb2.ModelInferRequest(model_name="m")
    place(message.inputs.add(name="a", datatype="INT8", shape=[8]), "r", 0, 8)
    message.inputs.add(name="b", datatype="INT8", shape=[8])
    place(message.inputs.add(name="c", datatype="INT8", shape=[8]), "r", 0, 8)
    template, request_id, raw = InferRequestDecoder().decode(message.SerializeToString())
    with pytest.raises(ServingError, match="unable to find data for input tensor 'b' for model 'm' in request"):
        template.request(request_id, template.with_regions(raw, shared), lambda response: None, None)


def test_places_of_outputs_are_read_and_negative_numbers_fit_no_region() -> None:
    message = request_message()
    place(message.outputs.add(name="a"), "r", -1, 16)
    message.outputs.add(name="b")
    template, _, _ = InferRequestDecoder().decode(message.SerializeToString())
    assert {
        name: (entry.region, entry.offset, entry.size_bytes)
        for name, entry in template.output_parameters.places.items()
    } == {"a": ("r", 2**64 - 1, 16)}
    assert not InferRequestDecoder().decode(request_message().SerializeToString())[0].has_regions


def test_classification_is_read_per_output() -> None:
    message = request_message()
    message.outputs.add(name="a").parameters["classification"].int64_param = 3
    message.outputs.add(name="b")
    template, _, _ = InferRequestDecoder().decode(message.SerializeToString())
    assert template.output_parameters.class_counts == {"a": 3}
    assert template.requested_outputs == ("a", "b")
    message.outputs[0].parameters["classification"].int64_param = 0
    assert refused(message).message == "invalid value for 'classification' parameter, expected >= 0"
    message.outputs[0].parameters["classification"].bool_param = True
    assert refused(message).message == "invalid value type for 'classification' parameter, expected int64_param"
