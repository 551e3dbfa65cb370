"""Values from the command line as tensors: datatypes, shapes, and what is told where they do not fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from trireme.tools.client.errors import InputError
from trireme.tools.client.model import ServedModel
from trireme.tools.infer.values import array_of, json_values, tensor_of, values_of_text
from trireme.tools.perf.model import TensorSpec


def model_of(*dims: int, datatype: str = "FP32", max_batch_size: int = 0) -> ServedModel:
    return ServedModel("m", "", ("1",), "python", max_batch_size, (TensorSpec("A", datatype, dims),), ())


def sent(model: ServedModel, text: str, shape: tuple[int, ...] | None = None) -> Any:
    spec = model.inputs[0]
    tensor = tensor_of(model, spec, values_of_text(spec, text), shape)
    assert tensor.datatype == spec.datatype
    return array_of(tensor)


@pytest.mark.parametrize(
    ("dims", "batch", "text", "shape"),
    [
        ((4,), 8, "1,2,3,4", (1, 4)),
        ((4,), 8, "1 2 3 4 5 6 7 8", (2, 4)),
        ((4,), 0, "[1, 2, 3, 4]", (4,)),
        ((2, 2), 0, "1,2,3,4", (2, 2)),
        ((2, 2), 4, "[[1,2],[3,4]]", (1, 2, 2)),
        ((-1,), 4, "1,2,3", (1, 3)),
        ((-1, 3), 0, "1,2,3,4,5,6", (2, 3)),
        ((-1, -1), 0, "[[1,2,3],[4,5,6]]", (2, 3)),
        ((1,), 0, "7", (1,)),
        ((-1, -1), 0, "7", (1, 1)),
        ((), 0, "7", ()),
    ],
)
def test_shape_is_found(dims: tuple[int, ...], batch: int, text: str, shape: tuple[int, ...]) -> None:
    assert sent(model_of(*dims, max_batch_size=batch), text).shape == shape


def test_given_shape_wins_and_may_leave_one_dimension_open() -> None:
    assert sent(model_of(-1, -1), "1,2,3,4,5,6", (3, -1)).tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("model", "text", "shape", "reason"),
    [
        (model_of(4), "1,2,3", None, r"takes FP32 \[4\]; 3 values were given"),
        (model_of(4, max_batch_size=2), "1", None, r"\[-1, 4\], a batch first; 1 value was given"),
        (model_of(-1, -1), "1,2,3", None, r"several shapes: say which with --shape A=1,1"),
        (model_of(2, 2), "[[1,2,3]]", None, r"what was given is \[1, 3\]"),
        (model_of(2, 2), "[[1,2],[3]]", None, "differ in length"),
        (model_of(4), "1,2,3,4", (5,), r"4 values, which do not fill \[5\]"),
        (model_of(1), "one", None, "takes FP32, which 'one' is not"),
        (model_of(1, datatype="INT8"), "300", None, "INT8: -128 to 127"),
        (model_of(1, datatype="INT32"), "[1.5]", None, "other numbers than whole ones were given"),
        (model_of(1, datatype="INT32"), "[1e999]", None, "other numbers than whole ones were given"),
        (model_of(1, datatype="INT32"), "[NaN]", None, "other numbers than whole ones were given"),
        (model_of(1, datatype="BOOL"), "2", None, "takes BOOL"),
        (model_of(1, datatype="INT32"), '"a"', None, "takes INT32"),
    ],
)
def test_what_does_not_fit_is_told(model: ServedModel, text: str, shape: tuple[int, ...] | None, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        sent(model, text, shape)


@pytest.mark.parametrize(
    ("datatype", "text", "values"),
    [
        ("INT64", "9223372036854775807", [9223372036854775807]),
        ("UINT64", "18446744073709551615", [18446744073709551615]),
        ("UINT8", "0xff", [255]),
        ("BOOL", "true,false", [True, False]),
        ("FP16", "1.5,-inf", [1.5, -np.inf]),
        ("BF16", "1.5,3.140625", [1.5, 3.140625]),
        ("FP64", "0.1", [0.1]),
    ],
)
def test_datatypes_keep_their_values(datatype: str, text: str, values: list[Any]) -> None:
    assert sent(model_of(-1, datatype=datatype), text).tolist() == values


def test_numbers_without_a_word_in_json_are_texts_and_come_back() -> None:
    model = model_of(2, 2)
    printed = json.dumps(json_values(sent(model, "nan,inf,-inf,1.5")), allow_nan=False)
    assert json.loads(printed) == [["NaN", "Infinity"], ["-Infinity", 1.5]]
    assert np.array_equal(sent(model, printed), [[np.nan, np.inf], [-np.inf, 1.5]], equal_nan=True)


@pytest.mark.parametrize(
    ("datatype", "text", "reason"),
    [
        ("FP16", "1e6", "takes FP16: -65504 to 65504"),
        ("FP32", "-1e300", "takes FP32: "),
        ("BF16", "1e300", "BF16"),
        ("FP32", '["NaN", "x"]', "is not"),
    ],
)
def test_numbers_that_would_lose_their_end_are_refused(datatype: str, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        sent(model_of(-1, datatype=datatype), text)


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    assert sent(model_of(-1, datatype="BF16"), "1.00390625,1.01171875").tolist() == [1.0, 1.015625]
    assert np.isnan(sent(model_of(1, datatype="BF16"), "nan"))[0]


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("Hello, world", [b"Hello, world"]),
        ('["one", "two"]', [b"one", b"two"]),
        ('[{"role": "user"}]', [b'[{"role": "user"}]']),
        ("[not json", [b"[not json"]),
        ("ξένος", ["ξένος".encode()]),
        ("", [b""]),
    ],
)
def test_texts(text: str, elements: list[bytes]) -> None:
    assert sent(model_of(-1, datatype="BYTES"), text).tolist() == elements
