"""Tensors for requests: made up, from JSON, from folders, side by side in batches."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.core.elements import decode_bytes, encode_bytes
from trireme.tools.perf.bounded_files import read_bounded
from trireme.tools.perf.data.batches import request_contents
from trireme.tools.perf.data.tensor_source import load_dataset
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import ModelDescription, TensorSpec
from trireme.tools.perf.options import InputOptions


def model(*inputs: TensorSpec, is_sequence: bool = False) -> ModelDescription:
    outputs = (TensorSpec("OUT", "INT32", (2,)),)
    return ModelDescription("m", "", 8, inputs, outputs, is_sequence=is_sequence)


NUMBERS = TensorSpec("N", "FP32", (-1,))
PAIR = TensorSpec("P", "INT32", (2,))
TEXTS = TensorSpec("T", "BYTES", (2,))


def write(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_random_numbers_are_finite_and_the_same_for_every_run() -> None:
    options = InputOptions(shapes={"N": (1000,)})
    first, second = (load_dataset(model(NUMBERS), options, seed=3).streams[0][0].tensors[0] for _ in range(2))
    assert first == second
    assert np.isfinite(np.frombuffer(first.data, "<f4")).all()


@pytest.mark.parametrize("datatype", ["INT8", "FP32", "BF16", "BYTES"])
@pytest.mark.parametrize("shape", [(2**36,), (2**40, 2**40), (2**62,) * 100_000], ids=["long", "square", "many"])
@pytest.mark.parametrize("source", ["random", "zero"])
def test_shapes_that_are_too_large_are_refused_before_values_are_made(
    source: str, shape: tuple[int, ...], datatype: str
) -> None:
    with pytest.raises(PerfError, match="input 'N' has a shape of more than 2 GiB, too much to be made up and sent"):
        load_dataset(model(TensorSpec("N", datatype, shape)), InputOptions(sources=(source,)), 0)


def test_a_large_dimension_beside_one_of_zero_is_none() -> None:
    spec = TensorSpec("N", "FP32", (2**40, 0))
    assert load_dataset(model(spec), InputOptions(), 0).streams[0][0].tensors[0].data == b""


def test_strings_are_random_or_given() -> None:
    tensor = load_dataset(model(TEXTS), InputOptions(string_length=7), 0).streams[0][0].tensors[0]
    assert [len(text) for text in decode_bytes(tensor.data)] == [7, 7]
    tensor = load_dataset(model(TEXTS), InputOptions(string_data="so"), 0).streams[0][0].tensors[0]
    assert decode_bytes(tensor.data) == [b"so", b"so"]
    tensor = load_dataset(model(TEXTS), InputOptions(sources=("zero",)), 0).streams[0][0].tensors[0]
    assert decode_bytes(tensor.data) == [b"", b""]


def test_a_shape_is_asked_for_where_the_model_leaves_it_open() -> None:
    told = "input N contains dynamic shape, provide shapes to send along with the request: --shape N:D with a number"
    with pytest.raises(PerfError, match=told):
        load_dataset(model(NUMBERS), InputOptions(), 0)
    with pytest.raises(PerfError, match="--shape I:3,D,D with"):
        load_dataset(model(TensorSpec("I", "FP32", (3, -1, -1))), InputOptions(), 0)
    with pytest.raises(PerfError, match="has 1 dimensions"):
        load_dataset(model(NUMBERS), InputOptions(shapes={"N": (2, 2)}), 0)
    with pytest.raises(PerfError, match=r"which the shape .* does not fit"):
        load_dataset(model(PAIR), InputOptions(shapes={"P": (3,)}), 0)


def test_an_optional_input_without_a_shape_is_left_out() -> None:
    optional = TensorSpec("N", "FP32", (-1,), is_optional=True)
    (step,) = load_dataset(model(PAIR, optional), InputOptions(), 0).streams[0]
    assert [tensor.name for tensor in step.tensors] == ["P"]


def test_json_has_values_shapes_and_base64(tmp_path: Path) -> None:
    raw = base64.b64encode(np.array([5, 6], "<i4").tobytes()).decode()
    path = write(
        tmp_path,
        {
            "data": [
                {"P": [1, 2], "N": [0.5, 1.5, 2.5]},
                {"P": {"b64": raw}, "N": {"content": [[1.0, 2.0]], "shape": [2]}},
            ],
            "validation_data": [{"OUT": [1, 2]}, {"OUT": [5, 6]}],
        },
    )
    first, second = load_dataset(model(PAIR, NUMBERS), InputOptions(sources=(path,)), 0).streams[0]
    assert [tensor.shape for tensor in first.tensors] == [(2,), (3,)]
    assert np.frombuffer(second.tensors[0].data, "<i4").tolist() == [5, 6]
    assert second.tensors[1].shape == (2,)
    assert first.expected == {"OUT": np.array([1, 2], "<i4").tobytes()}


def test_what_genai_perf_writes_beside_the_inputs_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, {"data": [{"model": "m", "P": [1, 1], "parameters": {}, "timestamp": [5]}]})
    assert len(load_dataset(model(PAIR), InputOptions(sources=(path,)), 0).streams) == 1


def test_lists_in_lists_are_sequences(tmp_path: Path) -> None:
    path = write(tmp_path, {"data": [[{"P": [1, 1]}, {"P": [2, 2]}], [{"P": [3, 3]}]]})
    found = load_dataset(model(PAIR, is_sequence=True), InputOptions(sources=(path,)), 0)
    assert [len(stream) for stream in found.streams] == [2, 1]
    assert len(load_dataset(model(PAIR), InputOptions(sources=(path,)), 0).streams[0]) == 3


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"data": [{"P": [1, 2, 3]}]}, "mismatch in the data provided for P"),
        ({"data": [{"P": ["a", "b"]}]}, "the values of 'P' are no INT32"),
        ({"data": [{"P": [1, None]}]}, "the values of 'P' are no INT32"),
        ({"data": [{"P": [1, 2.5]}]}, "the values of 'P' are no INT32, or too large for it"),
        ({"data": [{"P": [1, 2**40]}]}, "the values of 'P' are no INT32, or too large for it"),
        ({"data": [{"P": [1, float("inf")]}]}, "the values of 'P' are no INT32"),
        ({"data": [{"P": {"content": [1, 2], "shape": "ab"}}]}, "is not in the form of input data"),
        ({"data": [[{"P": [1, 2]}], 7]}, "is not in the form of input data"),
        ({"data": [{"P": [1, 2]}], "validation_data": {"OUT": [1]}}, "is not in the form of input data"),
        ({"data": [{"P": [1, 2]}], "validation_data": [[1]]}, "is not in the form of input data"),
        ({"data": [{"P": [1, 2], "timestamp": "soon"}]}, "'timestamp' is no number of milliseconds"),
        ({"data": [{"P": [1, 2], "timestamp": [float("nan")]}]}, "'timestamp' is no number of milliseconds"),
        ({"data": [{"P": {"b64": "***"}}]}, "is no base64"),
        ({"data": [{}]}, "missing tensor P"),
        ({"data": [{"P": [1, 2], "Q": [1]}]}, "'Q' is not found in the model configuration"),
        ({"data": [7]}, "an entry is an object"),
        ({"data": []}, "doesn't contain data field"),
        ([], "doesn't contain data field"),
        ({"data": [{"P": [1, 2]}], "validation_data": [{"NO": [1]}]}, "is no output of the model"),
    ],
)
def test_wrong_json_is_named_with_its_place(tmp_path: Path, document: Any, sentence: str) -> None:
    with pytest.raises(PerfError) as failure:
        load_dataset(model(PAIR), InputOptions(sources=(write(tmp_path, document),)), 0)
    assert sentence in str(failure.value)


def test_texts_are_texts(tmp_path: Path) -> None:
    spec = TensorSpec("T", "BYTES", (1,))
    for value in (None, 7, {}):
        with pytest.raises(PerfError, match=r"'T' are no texts|has b64 or content"):
            load_dataset(model(spec), InputOptions(sources=(write(tmp_path, {"data": [{"T": value}]}),)), 0)


@pytest.mark.parametrize("content", ["{", "[" * 100_000])
def test_what_is_no_json_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(PerfError, match="failed to parse the specified json file"):
        load_dataset(model(PAIR), InputOptions(sources=(str(tmp_path / "x.json"),)), 0)


def test_a_folder_has_a_file_for_each_input(tmp_path: Path) -> None:
    (tmp_path / "P").write_bytes(np.array([3, 4], "<i4").tobytes())
    (tmp_path / "T").write_text("one\ntwo\n")
    options = InputOptions(sources=(str(tmp_path),))
    pair, texts = load_dataset(model(PAIR, TEXTS), options, 0).streams[0][0].tensors
    assert np.frombuffer(pair.data, "<i4").tolist() == [3, 4]
    assert texts.data == encode_bytes(["one", "two"])
    (tmp_path / "P").write_bytes(b"123")
    with pytest.raises(PerfError, match="has byte size 3, expect 8"):
        load_dataset(model(PAIR, TEXTS), options, 0)
    (tmp_path / "P").unlink()
    with pytest.raises(PerfError, match="failed to read file for input P"):
        load_dataset(model(PAIR, TEXTS), options, 0)


def test_a_file_of_another_size_than_its_tensor_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "P").open("wb") as file:
        file.truncate(1 << 36)  # more than there is memory for
    with pytest.raises(PerfError, match=f"has byte size {1 << 36}, expect 8"):
        load_dataset(model(PAIR), InputOptions(sources=(str(tmp_path),)), 0)


def test_json_and_strings_have_a_largest_size(tmp_path: Path) -> None:
    for name in ("x.json", "T"):
        with (tmp_path / name).open("wb") as file:
            file.truncate((1 << 30) + 1)
    for source in (tmp_path / "x.json", tmp_path):
        with pytest.raises(PerfError, match="it has more than 1024 MiB"):
            load_dataset(model(TEXTS), InputOptions(sources=(str(source),)), 0)


def test_what_has_no_size_is_read_up_to_the_largest() -> None:
    with pytest.raises(OSError, match="it has more than 5 bytes"):
        read_bounded("/dev/zero", 5)
    assert read_bounded("/dev/null", 5) == b""


def test_batches_take_the_next_steps_in_turn(tmp_path: Path) -> None:
    path = write(tmp_path, {"data": [{"P": [n, n]} for n in range(3)]})
    (steps,) = load_dataset(model(PAIR), InputOptions(sources=(path,)), 0).streams
    contents = request_contents(steps, 2, has_batch_dimension=True)
    values = [np.frombuffer(content.inputs[0].data, "<i4")[::2].tolist() for content in contents]
    assert values == [[0, 1], [2, 0], [1, 2]]
    assert contents[0].inputs[0].shape == (2, 2)
