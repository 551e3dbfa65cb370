"""The request that a command line makes, and what is shown of a model and of its answers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.core.elements import decode_bytes
from trireme.core.tensor import Tensor
from trireme.tools.client.errors import AnswerError, InputError
from trireme.tools.client.messages import InferAnswer
from trireme.tools.client.model import ServedModel
from trireme.tools.infer.description import example_line, model_text
from trireme.tools.infer.printing import AnswerPrinter
from trireme.tools.infer.request import GivenRequest, build_call
from trireme.tools.perf.model import TensorSpec


def nested(levels: int) -> str:
    return "[" * levels + '"a"' + "]" * levels


ADDER = ServedModel(
    "adder",
    "",
    ("1",),
    "python",
    8,
    (TensorSpec("A", "FP32", (2,)), TensorSpec("B", "FP32", (2,))),
    (TensorSpec("SUM", "FP32", (2,)),),
)
WRITER = ServedModel(
    "writer",
    "",
    ("1",),
    "llm",
    0,
    (
        TensorSpec("messages", "BYTES", (-1,), is_optional=True),
        TensorSpec("text_input", "BYTES", (1,), is_optional=True),
        TensorSpec("stream", "BOOL", (1,), is_optional=True),
    ),
    (TensorSpec("text_output", "BYTES", (-1,)), TensorSpec("usage", "BYTES", (1,))),
    is_decoupled=True,
)


def inputs_of(model: ServedModel, *values: str, **given: Any) -> dict[str, Any]:
    call = build_call(model, GivenRequest(values, **given))
    return {tensor.name: tensor.to_numpy().tolist() for tensor in call.inputs}


def test_inputs_by_name() -> None:
    assert inputs_of(ADDER, "A=1,2", "B=[3, 4]") == {"A": [[1, 2]], "B": [[3, 4]]}


def test_value_alone_is_for_the_main_input_even_with_an_equals_sign_in_it() -> None:
    assert inputs_of(WRITER, "What is 2 + 2 = ?", is_streamed=False) == {"text_input": [b"What is 2 + 2 = ?"]}
    with pytest.raises(InputError, match="say for which input '1,2' is: NAME=VALUE, with one of A, B"):
        inputs_of(ADDER, "1,2")


def test_model_that_streams_on_request_is_asked_to() -> None:
    assert inputs_of(WRITER, "Hi") == {"text_input": [b"Hi"], "stream": [True]}
    assert inputs_of(WRITER, "Hi", "stream=false")["stream"] == [False]


def test_at_signs_name_files_and_two_begin_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from a file\n")
    given = inputs_of(WRITER, f"text_input=@{tmp_path}/a.txt", "messages=@@home", is_streamed=False)
    assert given == {"text_input": [b"from a file"], "messages": [b"@home"]}


def test_document_of_either_form(tmp_path: Path) -> None:
    flat = build_call(ADDER, GivenRequest(data='{"A": [1, 2], "B": [[3, 4]], "priority": 2}'))
    assert dict(flat.parameters) == {"priority": 2}
    document = {
        "inputs": [
            {"name": "A", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]},
            {"name": "B", "data": [[5, 6], [7, 8]]},
        ],
        "outputs": [{"name": "SUM"}],
        "parameters": {"sequence_id": 3},
    }
    (tmp_path / "r.json").write_text(json.dumps(document))
    call = build_call(ADDER, GivenRequest(data=f"@{tmp_path}/r.json", parameters=("sequence_end=true", "who=me")))
    assert [tensor.to_numpy().tolist() for tensor in call.inputs] == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert (call.outputs, dict(call.parameters)) == (("SUM",), {"sequence_id": 3, "sequence_end": True, "who": "me"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (GivenRequest(["A=1,2"]), r"an input is missing: 'B' \(FP32 \[-1, 2\]\)"),
        (GivenRequest(data="{}"), "inputs are missing: 'A' .*, 'B'"),
        (GivenRequest(["AA=1"]), "no input 'AA'; did you mean 'A'"),
        (GivenRequest(data="{"), "--data gives is no JSON"),
        (GivenRequest(data="[1]"), "--data gives is no object"),
        (GivenRequest(data='{"inputs": [{"name": "A"}]}'), "at least a name and data"),
        (GivenRequest(data='{"inputs": [{"name": "A", "datatype": "FP31", "data": 1}]}'), "did you mean 'FP32'"),
        (GivenRequest(data='{"inputs": [{"name": "A", "datatype": [1], "data": 1}]}'), "unknown datatype"),
        (
            GivenRequest(data='{"inputs": [{"name": "A", "shape": "ab", "data": 1}]}'),
            "the shape of input 'A' in --data",
        ),
        (GivenRequest(data='{"inputs": [{"name": "A", "shape": [1.5], "data": 1}]}'), "a list of whole numbers"),
        (GivenRequest(data='{"inputs": [], "parameters": [1]}'), "the parameters in --data are an object"),
        (GivenRequest(data='{"inputs": [], "parameters": {"p": []}}'), "parameter 'p' in --data is no single value"),
        (GivenRequest(data='{"inputs": [], "outputs": 7}'), "the outputs in --data are a list"),
        (GivenRequest(data='{"inputs": [], "outputs": [{}]}'), "the outputs in --data are a list"),
        (GivenRequest(data="[" * 100_000), "--data gives is no JSON"),
        (GivenRequest(["A=" + "[" * 100_000, "B=1,2"]), "input 'A' are nested too deeply"),
        (GivenRequest(["A=" + nested(300), "B=1,2"]), "input 'A' are nested too deeply"),
        (GivenRequest(["A=" + nested(5_000), "B=1,2"]), "input 'A' are nested too deeply"),
        (GivenRequest(data=f'{{"A": {nested(5_000)}}}'), "--data gives is no JSON: it is nested too deeply"),
        (GivenRequest(data='{"C": [1]}'), "no input 'C', and a parameter is a single value"),
        (GivenRequest(["A=1,2", "B=1,2"], outputs=["SUN"]), "no output 'SUN'; did you mean 'SUM'"),
        (GivenRequest(["A=1,2", "B=1,2"], shapes=["A"]), "'A' is not of the form NAME=VALUE"),
        (GivenRequest(["A=1,2", "B=1,2"], shapes=["A=one"]), "'one' is no shape"),
        (GivenRequest(["A=1,2", "B=1,2"], shapes=["C=1"]), "no input 'C'"),
    ],
)
def test_request_that_cannot_be_made_is_told(given: GivenRequest, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        build_call(ADDER, given)


@pytest.mark.parametrize("levels", [300, 700, 5_000, 45_000])
def test_a_text_that_only_looks_like_lists_of_texts_is_sent_as_it_is(levels: int) -> None:
    (tensor,) = build_call(WRITER, GivenRequest([f"messages={nested(levels)}"], is_streamed=False)).inputs
    assert decode_bytes(tensor.data) == [nested(levels).encode()]
    with pytest.raises(InputError, match="--data gives is no JSON: it is nested too deeply"):
        build_call(WRITER, GivenRequest(data=f'{{"messages": {nested(levels)}}}'))


def test_model_is_described_with_a_line_that_works() -> None:
    text = model_text(ADDER, 80, ["--grpc"])
    assert "adder (python, batches of up to 8)" in text
    assert "| A    | FP32     | [batch, 2] |" in text
    assert text.endswith("trireme infer adder A=1,2 B=1,2 --grpc")
    assert example_line(WRITER, []) == "trireme infer writer text_input=Hello"


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (TensorSpec("image", "BYTES", (1,)), "image=@picture.png"),
        (TensorSpec("PIXELS", "FP32", (3, 224, 224)), "PIXELS=@PIXELS.npy"),
        (TensorSpec("flags", "BOOL", (2,)), "flags=true,true"),
        (TensorSpec("texts", "BYTES", (2,)), """'texts=["Hello", "Hello"]'"""),
        (TensorSpec("X", "INT32", (-1, -1)), "X=1 --shape=X=1,1"),
    ],
)
def test_example_suits_the_input(spec: TensorSpec, word: str) -> None:
    assert example_line(ServedModel("m", "", (), "", 0, (spec,), ()), []) == f"trireme infer m {word}"


def printed(*answers: InferAnswer, is_json: bool = False, is_stream: bool = False) -> str:
    stream = io.StringIO()
    printer = AnswerPrinter(stream, is_json, is_stream)
    for answer in answers:
        printer.show(answer)
    printer.end_line()
    return stream.getvalue()


def answer_of(**arrays: Any) -> InferAnswer:
    return InferAnswer("m", "1", tuple(Tensor.from_numpy(name, value) for name, value in arrays.items()))


def texts(*values: bytes) -> Any:
    return np.array(values, np.object_)


def test_answers_for_people() -> None:
    assert printed(answer_of(text=texts(b"Hello"))) == "Hello\n"
    assert printed(answer_of(SUM=np.array([[1.5, 2]], np.float32))) == "SUM  FP32 [1, 2]\n[[1.5, 2. ]]\n"
    two = printed(answer_of(label=texts(b"cat", b"dog"), why=texts(b"fur")))
    assert two == "label  BYTES [2]\n  cat\n  dog\nwhy  fur\n"
    assert printed(answer_of(f=texts(b"\x89PNG\xff"))) == "<5 bytes, a PNG picture; -o FILE writes them>\n"
    assert len(printed(answer_of(X=np.zeros(100000, np.float32)))) < 1000


def test_stream_of_texts_is_one_text() -> None:
    pieces = [answer_of(text_output=texts(word), usage=texts(b"{}")) for word in (b"We ", b"rowed")]
    assert printed(*pieces, InferAnswer("m", "1", ()), is_stream=True) == "We rowed\n"


def test_stream_of_other_things_is_numbered() -> None:
    shown = printed(answer_of(N=np.array([1], np.int32)), answer_of(N=np.array([2], np.int32)), is_stream=True)
    assert shown == "answer 1\nN  INT32 [1]\n[1]\nanswer 2\nN  INT32 [1]\n[2]\n"


def test_json_has_a_line_for_each_answer() -> None:
    lines = printed(answer_of(a=texts(b"\xff")), InferAnswer("m", "1", (), {"final": True}), is_json=True).splitlines()
    first, last = map(json.loads, lines)
    assert first["outputs"] == [
        {"name": "a", "datatype": "BYTES", "shape": [1], "encoding": "base64", "data": ["/w=="]}
    ]
    assert last == {"model_name": "m", "model_version": "1", "parameters": {"final": True}, "outputs": []}


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("O", "FP32", (2,), b"123"),
        Tensor("O", "FP32", (2,), b"1234"),
        Tensor("O", "FP99", (1,), b"1"),
        Tensor("O", "BYTES", (1,), b"\xff\0\0\0x"),
    ],
)
def test_outputs_that_do_not_fit_their_shape_are_told(tensor: Tensor) -> None:
    for is_json in (True, False):
        with pytest.raises(AnswerError, match="output 'O' cannot be read: the server sent "):
            printed(InferAnswer("m", "1", (tensor,)), is_json=is_json)


def test_text_does_not_steer_the_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    AnswerPrinter(stream, is_json=False, is_stream=False).show(answer_of(text=texts(b"\x1b[2Jred\tand\nblue")))
    assert stream.getvalue() == "[2Jred\tand\nblue\n"
    numbers = np.array([1], np.int32)
    AnswerPrinter(stream, is_json=False, is_stream=False).show(answer_of(**{"\x1b[2J\x9b": numbers}))
    assert "\\x1b[2J\\x9b" in stream.getvalue()
    AnswerPrinter(stream, is_json=False, is_stream=False).show(answer_of(text=texts("a\x9b2Jb".encode())))
    assert stream.getvalue().endswith("\na2Jb\n")
