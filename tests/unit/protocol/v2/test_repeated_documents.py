"""Documents around changing data: whatever is remembered, the result is that of reading the whole text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import ServingError
from trireme.protocol.v2.binary import take_tensors
from trireme.protocol.v2.json_document import decode_document
from trireme.protocol.v2.repeated_documents import DocumentFrames

LIMIT = 1 << 20
TYPES = st.sampled_from(["FP32", "INT32", "UINT8", "BOOL", "BYTES"])
ELEMENTS = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=6),
    st.none(),
    st.just("]"),
)
NOT_FOUND = decode_document(b'{"inputs":[]}', LIMIT), {}
DATA = st.lists(st.one_of(ELEMENTS, st.lists(ELEMENTS, max_size=2)), max_size=4)
NAMES = st.sampled_from(["IN", 'a"data":[1]', "data", "]", "b]c"])


def text_of(name, datatype, count, data, extra):
    entry = {"name": name, "shape": [count], "datatype": datatype, "data": data}
    return json.dumps({"inputs": [entry], **extra}, separators=(",", ":")).encode()


def result_of(call):
    try:
        document, inputs = call()
    except ServingError as error:
        return error.kind, error.message
    tensors = [(t.name, t.datatype, tuple(t.shape), bytes(t.data)) for t in inputs.values()]
    return tensors, document.requested_outputs, document.parameters, document.is_binary_by_default


def whole(text):
    document = decode_document(text, LIMIT)
    return document, take_tensors(document, text, len(text), "m")


@given(
    NAMES,
    TYPES,
    st.integers(0, 4),
    DATA,
    DATA,
    st.sampled_from([{}, {"outputs": [{"name": "data"}]}, {"parameters": {"a": "]"}}]),
)
def test_a_remembered_document_gives_what_the_whole_text_gives(name, datatype, count, first, second, extra):
    frames = DocumentFrames()
    for data in (first, second, first):
        text = text_of(name, datatype, count, data, extra)
        expected = result_of(lambda text=text: whole(text))
        found = result_of(lambda text=text: frames.decode(text) or NOT_FOUND)
        if found != result_of(lambda: NOT_FOUND):
            assert found == expected
        elif isinstance(expected[0], list):
            frames.keep(text, decode_document(text, LIMIT))


def test_other_numbers_in_the_same_document_are_found_again():
    frames = DocumentFrames()
    first = text_of("IN", "FP32", 2, [1, 2], {})
    assert frames.decode(first) is None
    frames.keep(first, decode_document(first, LIMIT))
    document, inputs = frames.decode(text_of("IN", "FP32", 2, [3.5, -1], {}))
    assert inputs["IN"].to_numpy().tolist() == [3.5, -1]
    assert document.requested_outputs == ()


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":"7","inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"\\"data\\":[1]","shape":[1],"datatype":"FP32","data" :[1]}]}',
        b'{"inputs":[{"name":"A","shape":[1],"datatype":"FP32","data":[1]},{"name":"B","shape":[1],"datatype":"FP32","data":[1]}]}',
    ],
)
def test_documents_that_cannot_be_told_apart_for_sure_are_not_kept(text):
    frames = DocumentFrames()
    frames.keep(text, decode_document(text, LIMIT))
    assert frames.decode(text) is None
