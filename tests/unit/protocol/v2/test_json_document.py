"""The JSON document of an inference request: what is read out of it, and the sentence for each mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import ErrorKind, ServingError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START
from trireme.protocol.v2.json_document import decode_document

LIMIT = 1 << 20
SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)
ENTRY = {"name": "a", "datatype": "FP32", "shape": [1], "data": [1]}
INTERNAL, INVALID = ErrorKind.INTERNAL, ErrorKind.INVALID_ARGUMENT


def decode(document: Any) -> Any:
    return decode_document(json.dumps(document).encode(), LIMIT)


def with_input(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{**ENTRY, **fields}]}


def with_output(**parameters: Any) -> dict[str, Any]:
    return {"inputs": [ENTRY], "outputs": [{"name": "o", "parameters": parameters}]}


def without(*names: str) -> dict[str, Any]:
    return {"inputs": [{key: value for key, value in ENTRY.items() if key not in names}]}


@pytest.mark.parametrize(
    ("document", "kind", "message"),
    [
        ({}, INTERNAL, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ([], INTERNAL, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ({"inputs": {}}, INTERNAL, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
        ({"id": 3}, INTERNAL, "Unable to parse 'id': attempt to access JSON non-string as string"),
        ({"inputs": [3]}, INVALID, SOURCES + "no field is set"),
        (without("data"), INVALID, SOURCES + "no field is set (input 'a')"),
        (
            with_input(data=0),
            INTERNAL,
            "Unable to parse 'data': attempt to access JSON non-array as array (input 'a' takes FP32)",
        ),
        (
            {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1], "dta": [1]}]},
            INVALID,
            SOURCES + "no field is set; 'dta' is there instead (input 'a')",
        ),
        (
            {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1], "parameters": {"binary_size": 4}}]},
            INVALID,
            SOURCES + "no field is set; 'binary_size' is there instead (input 'a')",
        ),
        (
            with_input(data=["x"]),
            INTERNAL,
            "Unable to parse 'data': attempt to access JSON non-number as double (input 'a' takes FP32)",
        ),
        (
            with_input(datatype="BYTES"),
            INTERNAL,
            "Unable to parse JSON bytes array: attempt to access JSON non-string as string (input 'a' takes text)",
        ),
        (
            with_input(shape=[2]),
            INTERNAL,
            "Failed to parse 'data' field: shape does not match true shape (input 'a', whose shape holds 2)",
        ),
        (
            with_input(name="a" * 200, data=[1, 2]),
            INTERNAL,
            f"Unable to parse 'data': Shape does not match true shape of 'data' field (input '{'a' * 100}', whose "
            "shape holds 1)",
        ),
        (
            with_input(parameters={"binary_data_size": 4}),
            INVALID,
            SOURCES + "set 'data' 'binary_data_size' (input 'a')",
        ),
        (
            with_input(parameters={"binary_data_size": 4, "shared_memory_region": "x"}),
            INVALID,
            SOURCES + "set 'data' 'binary_data_size' 'shared_memory_region' (input 'a')",
        ),
        (without("name"), INTERNAL, "Unable to parse 'name': attempt to access non-existing object member 'name'"),
        (
            with_input(name=3, shape="x"),
            INTERNAL,
            "Unable to parse 'name': attempt to access JSON non-string as string",
        ),
        (
            without("datatype"),
            INTERNAL,
            "Unable to parse 'datatype': attempt to access non-existing object member 'datatype' (input 'a')",
        ),
        (
            without("shape"),
            INTERNAL,
            "Unable to parse 'shape': attempt to access non-existing object member 'shape' (input 'a')",
        ),
        (
            with_input(shape="x"),
            INTERNAL,
            "Unable to parse 'shape': attempt to access JSON non-array as array (input 'a')",
        ),
        (
            with_input(shape=[-1]),
            INTERNAL,
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            with_input(shape=[1.0]),
            INTERNAL,
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (with_input(datatype="FP99"), INVALID, "invalid datatype for input a"),
        (
            with_input(shape=[2**62, 8]),
            INVALID,
            "invalid shape for input 'a': shape [4611686018427387904,8] causes total element count to exceed maximum "
            "size of 9223372036854775807",
        ),
        (
            with_input(shape=[2**63]),
            INVALID,
            "invalid shape for input 'a': shape [9223372036854775808] contains one or more invalid dimensions",
        ),
        (
            with_input(shape=[1 << 19]),
            INVALID,
            "JSON input 'a' has a byte_size (2097152 bytes) that exceeds the maximum allowed value of 1048576 bytes. "
            "Use --http-max-input-size to increase the limit.",
        ),
        (
            {"inputs": [ENTRY, ENTRY]},
            INVALID,
            "[request id: <id_unknown>] input 'a' already exists in request",
        ),
        (
            {"id": "q", "inputs": [ENTRY], "outputs": [{"name": "o"}, {"name": "o"}]},
            INVALID,
            "[request id: q] output 'o' already exists in request",
        ),
        (
            {"inputs": [ENTRY], "outputs": {}},
            INTERNAL,
            "Unable to parse 'outputs': attempt to access JSON non-array as array",
        ),
        (
            {"inputs": [ENTRY], "outputs": [3]},
            INTERNAL,
            "Unable to parse 'name': attempt to access non-existing object member 'name'",
        ),
        (
            with_output(binary_data="x"),
            INTERNAL,
            "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean",
        ),
        (
            with_output(classification=-1),
            INTERNAL,
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            with_output(classification=2, shared_memory_region="x"),
            INVALID,
            "Output can't set both 'shared_memory_region' and 'classification'",
        ),
        (
            with_output(binary_data=True, shared_memory_region="x"),
            INVALID,
            "Output can't set both 'shared_memory_region' and 'binary_data'",
        ),
        (
            with_output(shared_memory_region=1),
            INTERNAL,
            "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string",
        ),
        (
            with_output(shared_memory_region="x", shared_memory_byte_size=-1),
            INTERNAL,
            "Unable to parse 'shared_memory_byte_size': attempt to access JSON non-unsigned-integer as "
            "unsigned-integer",
        ),
        ({"parameters": []}, INTERNAL, "failed to get request params.: attempt to get members for non-object"),
        (
            {"parameters": {"a": None}},
            INVALID,
            "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"parameters": {"triton_x": 1}},
            INVALID,
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        ),
        (
            {"parameters": {"sequence_id": -5}},
            INTERNAL,
            "Unable to parse 'sequence_id': attempt to access JSON non-string as string",
        ),
        (
            {"parameters": {"sequence_id": "a" * 129}},
            ErrorKind.UNSUPPORTED,
            "string correlation ID cannot be longer than 128 characters",
        ),
        (
            {"parameters": {"sequence_start": 1}},
            INTERNAL,
            "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean",
        ),
        (
            {"parameters": {"priority": -1}},
            INTERNAL,
            "Unable to parse 'priority': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"parameters": {f"p{number}": 1 for number in range(16_385)}},
            INVALID,
            "an object of the JSON text has more than 16384 members, which is the limit",
        ),
    ],
)
def test_mistakes_get_their_sentence(document: Any, kind: ErrorKind, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        decode(document)
    assert (caught.value.kind, caught.value.message) == (kind, message)


def test_a_document_is_read_with_all_its_parts() -> None:
    document = decode(
        {
            "id": "q",
            "parameters": {
                "sequence_id": "s",
                "sequence_start": True,
                "sequence_end": True,
                "priority": 2,
                "timeout": 3,
                "binary_data_output": True,
                "own": 1.5,
                "wide": 2**63,
            },
            "inputs": [ENTRY, {"name": "b", "datatype": "INT8", "shape": [2], "parameters": {"binary_data_size": 2}}],
            "outputs": [{"name": "o", "parameters": {"binary_data": True, "classification": 3}}, {"name": "p"}],
        }
    )
    assert document.request_id == "q"
    assert (document.correlation_id, document.flags) == ("s", SEQUENCE_START | SEQUENCE_END)
    assert (document.priority, document.timeout_us, document.is_binary_by_default) == (2, 3, True)
    assert document.parameters == {"own": 1.5, "wide": float(2**63)}
    assert [(entry.name, entry.data, entry.size_bytes) for entry in document.inputs] == [
        ("a", b"\x00\x00\x80?", 4),
        ("b", None, 2),
    ]
    assert document.requested_outputs == ("o", "p")
    assert (document.outputs["o"].is_binary, document.outputs["o"].class_count) == (True, 3)
    assert (document.outputs["p"].is_binary, document.outputs["p"].class_count) == (False, 0)


def test_the_first_of_repeated_members_counts() -> None:
    text = b'{"id":"a","id":"b","inputs":[{"name":"x","name":"y","datatype":"FP32","shape":[1],"data":[1]}]}'
    document = decode_document(text, LIMIT)
    assert (document.request_id, document.inputs[0].name) == ("a", "x")


def test_a_document_beyond_the_limit_is_refused_unread() -> None:
    with pytest.raises(ServingError) as caught:
        decode_document(b"x" * 11, 10)
    assert caught.value.message == (
        "request JSON size of 11 bytes exceeds the maximum allowed input size of 10 bytes. "
        "Use --http-max-input-size to increase the limit."
    )


def test_a_shape_of_countless_dimensions_is_refused_quickly() -> None:
    with pytest.raises(ServingError, match="exceed maximum size"):
        decode(with_input(shape=[2**40] * 16_384))


FIELDS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**65) | st.floats() | st.sampled_from(["a", "FP32", "BYTES", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "inputs", "outputs", "parameters", "name", "datatype", "shape", "data", "binary_data_size"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(FIELDS)
def test_any_document_raises_nothing_but_a_serving_error(document: Any) -> None:
    try:
        decode(document)
    except ServingError:
        pass


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({}, ""),
        ({"output": [{"name": "o"}]}, "'output' in place of 'outputs'"),
        ({"paramters": {}, "outputs": []}, "'paramters' in place of 'parameters'"),
        ({"trace": 1}, ""),
        ({"outputs": [], "output": []}, ""),
    ],
)
def test_members_that_are_not_read_are_told_where_another_was_meant(members: dict[str, Any], told: str) -> None:
    assert decode({"inputs": [ENTRY], **members}).mistyped == told


@pytest.mark.parametrize(
    "document",
    [
        {"id": "x" * 65_537, "inputs": []},
        with_input(name="x" * 65_537),
        with_input(datatype="x" * 65_537),
        {"inputs": [ENTRY], "outputs": [{"name": "x" * 65_537}]},
        with_output(shared_memory_region="x" * 65_537),
    ],
)
def test_names_that_nothing_can_have_are_refused_and_not_repeated(document: Any) -> None:
    with pytest.raises(ServingError) as caught:
        decode(document)
    assert caught.value.message == "a name, id or datatype of the request has 65537 characters; the limit is 65536"
    assert caught.value.kind is INVALID


def test_a_shape_has_no_more_dimensions_than_the_limit() -> None:
    assert len(decode(with_input(shape=[1] * 16_384)).inputs[0].shape) == 16_384
    with pytest.raises(ServingError, match="the request has 16385 dimensions in a shape; the limit is 16384"):
        decode(with_input(shape=[1] * 16_385))
