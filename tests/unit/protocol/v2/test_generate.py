"""The generate extension: flat objects to tensors and parameters, responses to flat objects."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.elements import decode_bytes, encode_bytes
from trireme.core.errors import ErrorKind, ServingError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.protocol.v2.generate import decode_generate, encode_generate

FORMS = {
    "text": ("BYTES", (-1, -1)),
    "x": ("FP32", (2, -1)),
    "one": ("INT32", (-1, 1)),
    "half": ("FP16", (-1,)),
}
LIMIT = 1000
SHAPE_ERROR = "The schema can not convert input 'x' to tensor with proper shape"
TYPE_ERROR = "parameter 'zz' has invalid type. It should be either 'int', 'bool', or 'string'."
INTERNAL, INVALID = ErrorKind.INTERNAL, ErrorKind.INVALID_ARGUMENT


def decode(document: Any, limit: int = LIMIT) -> Any:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return decode_generate(text, FORMS, limit)


@pytest.mark.parametrize(
    ("name", "value", "shape"),
    [
        ("text", "abc", (1, 1)),
        ("text", ["a", "b"], (1, 2)),
        ("text", [], (1, 0)),
        ("x", [1, 2, 3, 4], (2, 2)),
        ("x", [], (2, 0)),
        ("one", 3, (1, 1)),
        ("one", [3], (1, 1)),
    ],
)
def test_shapes_are_fitted_to_the_metadata(name: str, value: Any, shape: tuple[int, ...]) -> None:
    assert decode({name: value}).inputs[name].shape == shape


def test_an_integer_becomes_the_tensors_type() -> None:
    assert decode({"x": [1, 2]}).inputs["x"].data == struct.pack("<2f", 1, 2)


def test_other_keys_are_parameters_and_nested_ones_are_unpacked() -> None:
    document = decode({"id": "q", "zz": 1, "parameters": {"k": 1.5, "text": "a", "b": True}, "priority": 3})
    assert document.request_id == "q"
    assert document.parameters == {"id": "q", "zz": 1, "k": 1.5, "b": True, "priority": 3}
    assert decode_bytes(document.inputs["text"].data) == [b"a"]


@pytest.mark.parametrize(
    ("document", "kind", "message"),
    [
        ({"x": [1, 2, 3]}, INVALID, SHAPE_ERROR),
        ({"x": 1}, INVALID, SHAPE_ERROR),
        ({"x": None}, INVALID, SHAPE_ERROR),
        (
            {"x": [[1, 2], [3, 4]]},
            INTERNAL,
            "Unable to parse 'data': Shape does not match true shape of 'data' field (input 'x', whose shape holds 2)",
        ),
        (
            {"one": 1.5},
            INTERNAL,
            "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer "
            "(input 'one' takes INT32)",
        ),
        (
            {"text": 1},
            INTERNAL,
            "Unable to parse JSON bytes array: attempt to access JSON non-string as string (input 'text' takes text)",
        ),
        (
            {"half": 1.5},
            INVALID,
            "receiving FP16 data via JSON is not supported. Please use the binary data format for input half",
        ),
        ({"zz": None}, INVALID, TYPE_ERROR),
        ({"zz": [1]}, INVALID, TYPE_ERROR),
        ({"parameters": {"zz": [1]}}, INVALID, "Converting keyword: 'parameters': " + TYPE_ERROR),
        (
            {"parameters": []},
            INTERNAL,
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
        ),
        ({"id": 3}, INTERNAL, "Unable to parse 'id': attempt to access JSON non-string as string"),
        (
            b'{"text":"a","text":"b"}',
            INVALID,
            "[request id: <id_unknown>] input 'text' already exists in request",
        ),
        ([], INTERNAL, "attempt to get members for non-object"),
        (b"", INTERNAL, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ],
)
def test_mistakes_get_their_sentence(document: Any, kind: ErrorKind, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        decode(document)
    assert (caught.value.kind, caught.value.message) == (kind, message)


OPTIONS = {"text": ("BYTES", (1,)), "sampling_parameters": ("BYTES", (1,))}


@pytest.mark.parametrize(
    ("document", "options"),
    [
        ({"sampling_parameters": {"stop": ["ä", "b"]}}, {"stop": ["ä", "b"]}),
        ({"stop": ["a"], "bias": {"5": 1.5}, "k": 3}, {"stop": ["a"], "bias": {"5": 1.5}}),
        ({"parameters": {"stop": ["a"]}}, {"stop": ["a"]}),
        ({"seed": 2**63 + 1, "k": 3}, {"seed": 2**63 + 1}),
        ({"stop": ["a"], "sampling_parameters": {"stop": ["b"], "n": 2}}, {"stop": ["a"], "n": 2}),
        ({"sampling_parameters": '{"stop": ["b"], "n": 2}', "stop": ["a"]}, {"stop": ["a"], "n": 2}),
    ],
)
def test_lists_objects_and_large_integers_go_to_a_model_that_takes_options_as_json(document: Any, options: Any) -> None:
    found = decode_generate(json.dumps(document).encode(), OPTIONS, LIMIT)
    (text,) = decode_bytes(found.inputs["sampling_parameters"].data)
    assert json.loads(text) == options
    assert found.parameters == ({"k": 3} if "k" in document else {})
    assert found.size_bytes == len(text) + 4


def options_of(document: bytes, name: str = "sampling_parameters") -> bytes:
    found = decode_generate(document, OPTIONS | {"messages": ("BYTES", (1,))}, LIMIT, "messages")
    (text,) = decode_bytes(found.inputs[name].data)
    return text


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_options_that_are_no_finite_numbers_reach_the_model_as_such(number: bytes) -> None:
    wanted = b'{"temperature":%b}' % number
    assert options_of(b'{"sampling_parameters":%b}' % wanted) == wanted
    assert options_of(b'{"bias":{"5":%b}}' % number) == b'{"bias":{"5":%b}}' % number
    sent = json.dumps(wanted.decode()).encode()
    assert options_of(b'{"sampling_parameters":%b,"stop":[]}' % sent) == b'{"temperature":%b,"stop":[]}' % number
    assert options_of(b'{"messages":[{"a":%b}]}' % number, "messages") == b'[{"a":%b}]' % number


def test_a_text_of_options_means_what_the_model_would_read_in_it() -> None:
    given = '{"n": 1, "n": 2, "bias": [{"5": 1, "5": 2, "6": 3}]}'
    alone = options_of(json.dumps({"sampling_parameters": given}).encode())
    joined = options_of(json.dumps({"sampling_parameters": given, "stop": ["a"]}).encode())
    assert json.loads(joined) == json.loads(alone) | {"stop": ["a"]}
    assert json.loads(joined)["n"] == 2


@pytest.mark.parametrize("sent", ["no JSON", "[1]", "[" * 100_000, [], ["{}", "{}"]])
def test_options_beside_what_is_no_object_are_refused(sent: Any) -> None:
    document = json.dumps({"stop": ["a"], "sampling_parameters": sent}).encode()
    forms = OPTIONS | {"sampling_parameters": ("BYTES", (-1,))}
    with pytest.raises(ServingError, match=r"^'sampling_parameters' must be one JSON object($|: JSON nesting)"):
        decode_generate(document, forms, 10 * len(document))


def test_more_fields_than_any_model_takes_are_refused() -> None:
    names = {f"p{number}": 1 for number in range(16_385)}
    for document in (names, {"parameters": names}):
        with pytest.raises(ServingError, match="an object of the JSON text has more than 16384 members"):
            decode(document, 1 << 20)


def test_an_input_named_like_the_keyword_is_refused() -> None:
    with pytest.raises(ServingError) as caught:
        decode_generate(b'{"parameters":{}}', {"parameters": ("FP32", (1,))}, LIMIT)
    assert caught.value.message == "Keyword 'parameters' for nested schema also given as input tensor name"


def test_all_inputs_together_are_limited() -> None:
    with pytest.raises(ServingError, match="byte_size \\(108 bytes\\) that exceeds the maximum"):
        decode({"x": [1] * 26, "one": 1}, 105)


def test_a_response_is_an_object_with_sorted_names() -> None:
    response = InferenceResponse(
        [
            Tensor("OUT", "BYTES", (1,), encode_bytes([b"a\xff"])),
            Tensor("many", "FP32", (2,), struct.pack("<2f", 1, float("nan"))),
            Tensor("none", "FP32", (0,), b""),
        ],
        parameters={"sequence_start": False, "aa": 1.5},
    )
    assert encode_generate(("m", "1"), "q", response) == (
        b'{"OUT":"a\xff","aa":1.5,"id":"q","many":[1.0,NaN],"model_name":"m","model_version":"1","none":[],'
        b'"sequence_start":false}'
    )


@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from([*FORMS, "id", "parameters", "p"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=4),
        ),
    )
)
def test_any_request_raises_nothing_but_a_serving_error(document: Any) -> None:
    try:
        decode(document)
    except ServingError:
        pass


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_text_comes_back_as_it_went_in(texts: list[str]) -> None:
    tensor = decode({"text": texts}, 1 << 20).inputs["text"]
    answer = json.loads(encode_generate(("m", "1"), "", InferenceResponse([tensor])))
    assert answer["text"] == (texts if len(texts) > 1 else texts[0])
