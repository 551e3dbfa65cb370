"""A model's folder inside a test is held to its configuration, as the server holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.core.errors import ServingError
from trireme.testing import load_model

WriteModel = Callable[..., Path]
CONFIG = """backend: "python"
max_batch_size: 4
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
input [ { name: "W", data_type: TYPE_FP32, dims: [ -1 ], optional: true } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""
MARK = "[request id: <id_unknown>] "
DOUBLE = """
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("{name}", ({value}))]) for x in inputs]
"""


def configured(write_model: WriteModel, config: str = CONFIG, name: str = "Y", value: str = "x * 2") -> Path:
    folder = write_model(DOUBLE.format(name=name, value=value))
    (folder / "config.pbtxt").write_text(config)
    return folder


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": np.zeros((1, 2), np.float32)}, "unexpected inference input 'x' for model 'model', did you mean 'X'?"),
        (
            {},
            f"{MARK}expected number of inputs between 1 and 2 but got 0 inputs for model 'model'. Got input(s) [], but "
            "missing required input(s) ['X']. Please provide all required input(s).",
        ),
        ({"X": np.zeros((1, 2))}, f"{MARK}inference input 'X' data-type is 'FP64', but model 'model' expects 'FP32'"),
        (
            {"X": np.zeros((1, 3), np.float32)},
            f"{MARK}unexpected shape for input 'X' for model 'model'. Expected [-1,2], got [1,3]. ",
        ),
        ({"X": np.zeros((5, 2), np.float32)}, f"{MARK}inference request batch-size must be <= 4 for 'model'"),
        (
            {"X": np.zeros((2, 2), np.float32), "W": np.zeros((1, 1), np.float32)},
            f"{MARK}input 'W' batch size does not match other inputs for 'model'",
        ),
    ],
)
def test_request_that_the_server_refuses_is_refused(
    write_model: WriteModel, inputs: dict[str, Any], words: str
) -> None:
    with load_model(configured(write_model)) as model, pytest.raises(ServingError) as caught:
        model.infer(inputs)
    assert caught.value.message.partition("NOTE:")[0] == words


def test_reshaped_input_is_given_as_the_model_sees_it(write_model: WriteModel) -> None:
    reshaped = CONFIG.replace("dims: [ 2 ] } ]", "dims: [ 1, 2 ], reshape { shape: [ 2 ] } } ]", 1)
    with load_model(configured(write_model, reshaped)) as model:
        assert model.infer(X=[[1, 2]])["Y"].tolist() == [[2, 4]]
        with pytest.raises(ServingError, match="unexpected shape for input 'X'"):
            model.infer(X=[[[1, 2]]])


def test_lists_get_the_datatype_of_the_input(write_model: WriteModel) -> None:
    with load_model(configured(write_model)) as model:
        assert model.infer(X=[[1, 2]])["Y"].tolist() == [[2, 4]]
        assert model.infer(X=[[1, 2]], W=[[0.5]])["Y"].dtype == np.float32


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"name": "y"}, "made output 'y', which its configuration does not have, did you mean 'Y'?"),
        ({"value": "x.astype(np.float64)"}, "made output 'Y' with datatype FP64, its configuration says FP32"),
        ({"value": "x[:, :1]"}, "made output 'Y' with shape [1, 1], its configuration says [-1, 2]"),
    ],
)
def test_output_that_the_server_refuses_is_the_error(write_model: WriteModel, made: dict[str, str], words: str) -> None:
    with (
        load_model(configured(write_model, **made)) as model,
        pytest.raises(ServingError, match="model 'model'") as found,
    ):
        model.infer(X=[[1, 2]])
    assert words in found.value.message


def test_backend_that_nobody_has_is_refused(write_model: WriteModel) -> None:
    folder = configured(write_model, CONFIG.replace('"python"', '"pyton"'))
    with pytest.raises(ServingError, match="unable to find backend 'pyton' for model 'model'"), load_model(folder):
        pass


def test_control_inputs_may_be_brought_along(write_model: WriteModel) -> None:
    sequences = (
        'sequence_batching { control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START '
        "fp32_false_true: [ 0, 1 ] } ] } ] }"
    )
    with load_model(configured(write_model, CONFIG + sequences)) as model:
        assert model.infer(X=[[1, 2]], START=np.ones((1, 1), np.float32))["Y"].tolist() == [[2, 4]]
