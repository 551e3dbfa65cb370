"""What the backends for compiled models share: tensors against configurations, names of arguments, joined batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.backends.compiled.batching import Arrays, RequestError, Result, run_batch
from trireme.backends.compiled.model_load import ModelLoadError, broken_file, require
from trireme.backends.compiled.tensor_spec import TensorSpec, check_config, complete_config
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.pytorch.arguments import check_tensors, input_order, output_order
from trireme.backends.pytorch.program import Program

IMAGE = TensorSpec("IMAGE", "FP32", (-1, 3, -1))
SCORE = TensorSpec("SCORE", "FP32", (-1,))


def completed(config: dict[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Any:
    message = {"name": "m", "max_batch_size": 0, "input": [], "output": [], **config}
    return complete_config(ModelConfig(json.dumps(message)), inputs, outputs, 4).as_dict()


def test_an_empty_configuration_gets_everything_from_the_file() -> None:
    config = completed({}, [IMAGE], [SCORE])
    assert config["max_batch_size"] == 4
    assert config["dynamic_batching"] == {}
    assert config["input"] == [{"name": "IMAGE", "data_type": "TYPE_FP32", "dims": [3, -1]}]
    assert config["output"] == [{"name": "SCORE", "data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []}}]
    check_config(config, [IMAGE], [SCORE])


def test_declared_tensors_with_the_batch_dimension_say_that_the_model_does_not_batch() -> None:
    declared = {"input": [{"name": "IMAGE", "data_type": "TYPE_INVALID", "dims": [-1, 3, 8]}]}
    config = completed(declared, [IMAGE], [SCORE])
    assert config["max_batch_size"] == 0
    assert "dynamic_batching" not in config
    assert config["input"][0] == {"name": "IMAGE", "data_type": "TYPE_FP32", "dims": [-1, 3, 8]}
    assert config["output"][0]["dims"] == [-1]


def test_a_scheduler_that_was_chosen_is_kept() -> None:
    config = completed({"max_batch_size": 8, "sequence_batching": {}}, [IMAGE], [SCORE])
    assert config["max_batch_size"] == 8
    assert "dynamic_batching" not in config


def test_an_output_of_unknown_rank_is_not_taken_to_batch() -> None:
    config = completed({}, [IMAGE], [TensorSpec("SCORE", "FP32", None)])
    assert config["max_batch_size"] == 0


def test_an_input_that_the_configuration_forgets_is_named() -> None:
    config = completed({}, [IMAGE], [SCORE])
    with pytest.raises(ModelLoadError, match="'MASK' is missing in the configuration"):
        check_config(config, [IMAGE, TensorSpec("MASK", "FP32", (-1,))], [SCORE])


def order(names: Sequence[str], program: Program) -> Any:
    return input_order({"name": "m", "input": [{"name": name} for name in names]}, program)


def test_inputs_find_their_arguments_by_name_by_index_or_in_order() -> None:
    script = Program(print, ("x", "y"), frozenset({"x", "y"}))
    assert order(["y", "x"], script).named == {"x": "x", "y": "y"}
    assert order(["in__1", "in__0"], script).positional == ("in__0", "in__1")
    assert order(["b", "a"], script).positional == ("b", "a")
    exported = Program(print, ("x", "scale"), frozenset({"scale"}))
    assert (order(["scale", "x"], exported).positional, order(["scale", "x"], exported).named) == (
        ("x",),
        {"scale": "scale"},
    )
    assert order(["a", "b"], Program(print, ("d",), takes_dictionary=True)).in_dictionary == ("a", "b")
    with pytest.raises(ModelLoadError, match="numbered from 0 without gaps"):
        order(["in__0", "in__2"], script)


def test_inputs_must_be_as_many_as_forward_takes() -> None:
    script = Program(print, ("x", "y", "z"), frozenset({"x", "y", "z"}), frozenset({"z"}))
    for fitting in (["x", "y"], ["z", "y", "x"], ["a", "b"], ["a", "b", "c"]):
        order(fitting, script)
    for other in (["x"], ["x", "z"], ["a"], ["a", "b", "c", "d"]):
        with pytest.raises(
            ModelLoadError, match=f"expects {len(other)} inputs, model provides 3: .* takes \\(x, y, z\\)"
        ):
            order(other, script)
    order(["a", "b"], Program(print, (), takes_more=True))


def test_outputs_are_picked_by_index_by_name_or_in_order() -> None:
    results = output_order({"output": [{"name": "OUTPUT__1"}, {"name": "OUTPUT__0"}]})
    assert results.pick((10, 11), ["OUTPUT__1"]) == {"OUTPUT__1": 11}
    assert results.pick({"OUTPUT__0": 1, "OUTPUT__1": 2}, ["OUTPUT__0"]) == {"OUTPUT__0": 1}
    assert output_order({"output": [{"name": "A"}]}).pick(["a", "b"], ["A"]) == {"A": ["a", "b"]}
    with pytest.raises(
        RequestError, match="'OUTPUT__1' of the configuration is result number 1 of forward, which retu"
    ):
        results.pick((10,), ["OUTPUT__1"])
    with pytest.raises(RequestError, match="the model returned no 'OUTPUT__1', only 'OUTPUT__0'"):
        results.pick({"OUTPUT__0": 1}, ["OUTPUT__1"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "error"),
    [
        ({"x": "FP32 3", "y": "INT64 3"}, {"OUTPUT__1": "FP32 3"}, None),
        ({"in__1": "INT64 3", "in__0": "FP32 3"}, {"RESULT": "FP32 3"}, None),
        ({"x": "FP32 5", "y": "INT64 3"}, {"OUTPUT__0": "FP32 3"}, r"tensor 'x'.*\[-1,3\].*\[-1,5\]"),
        ({"in__1": "INT64 5", "in__0": "FP32 3"}, {"OUTPUT__0": "FP32 3"}, r"tensor 'in__1'.*\[-1,3\].*\[-1,5\]"),
        (
            {"x": "INT64 3", "y": "INT64 3"},
            {"OUTPUT__0": "FP32 3"},
            "TYPE_INT64 for input 'x', model provides TYPE_FP32",
        ),
        ({"x": "FP32 3", "y": "INT64 3"}, {"OUT": "INT64 3"}, "TYPE_INT64 for output 'OUT', model provides TYPE_FP32"),
        ({"x": "FP32 3", "y": "INT64 3"}, {"OUTPUT__5": "FP32 3"}, "unexpected inference output 'OUTPUT__5'"),
    ],
)
def test_tensors_of_an_exported_program_are_held_against_the_configuration(
    inputs: dict[str, str], outputs: dict[str, str], error: str | None
) -> None:
    def entries(texts: dict[str, str]) -> list[dict[str, Any]]:
        parts = [(name, *text.split()) for name, text in texts.items()]
        return [{"name": name, "data_type": f"TYPE_{kind}", "dims": [int(dim)]} for name, kind, dim in parts]

    config = {"name": "m", "max_batch_size": 4, "input": entries(inputs), "output": entries(outputs)}
    given = [TensorSpec("x", "FP32", (-1, 3)), TensorSpec("y", "INT64", (-1, 3))]
    returned = [TensorSpec(f"OUTPUT__{place}", "FP32", (-1, 3)) for place in range(2)]
    program = Program(print, ("x", "y"), specs=(given, returned))
    with nullcontext() if error is None else pytest.raises(ModelLoadError, match=error):
        check_tensors(config, program, input_order(config, program), output_order(config))


def request(array: Any, *wanted: str) -> InferenceRequest:
    return InferenceRequest(
        inputs=[Tensor("IN", array)], requested_output_names=list(wanted) or ["OUT"], model_name="m"
    )


def test_requests_of_one_shape_run_together_and_the_others_by_themselves() -> None:
    shapes: list[tuple[int, ...]] = []

    def run(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        shapes.append(arrays["IN"].shape)
        return {name: Result(arrays["IN"] * 2) for name in wanted}

    given = [np.full(shape, number, np.int32) for number, shape in enumerate([(1, 2), (3, 2), (1, 5), (2, 2)])]
    responses = run_batch([request(array) for array in given], run, is_batching=True)
    assert shapes == [(6, 2), (1, 5)]
    for array, response in zip(given, responses, strict=True):
        np.testing.assert_array_equal(response.output_tensors()[0].as_numpy(), array * 2)


def test_each_request_of_a_batch_gets_the_outputs_that_it_wants() -> None:
    asked: list[list[str]] = []

    def run(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        asked.append(list(wanted))
        return {name: Result(arrays["IN"]) for name in wanted}

    array = np.zeros((1, 2), np.float32)
    responses = run_batch([request(array, "A"), request(array, "B", "A")], run, is_batching=True)
    assert asked == [["A", "B"]]
    assert [[tensor.name() for tensor in response.output_tensors()] for response in responses] == [["A"], ["A", "B"]]


def test_an_output_without_the_batch_dimension_is_taken_from_single_executions() -> None:
    def run(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        return {"OUT": Result(arrays["IN"].sum())}

    responses = run_batch([request(np.full((1, 2), n, np.float32)) for n in (1, 2)], run, is_batching=True)
    assert [response.output_tensors()[0].as_numpy().tolist() for response in responses] == [[2.0], [4.0]]


def test_an_absent_framework_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(ModelLoadError, match=r"'no_such_framework'.*pip install -c constraints\.txt '\.\[dream\]'"):
        require("no_such_framework", "dream")


@pytest.mark.parametrize(
    ("module", "package"),
    [("no_such_framework.parts", "no_such_framework"), ("PIL.Image", "pillow"), ("sklearn", "scikit-learn")],
)
def test_an_absent_module_is_told_as_the_package_that_pip_installs(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    def no_module(name: str) -> None:
        name = name.partition(".")[0]
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("trireme.backends.compiled.model_load.importlib.import_module", no_module)
    with pytest.raises(ModelLoadError, match=f"needs the package '{package}', which is not installed"):
        require(module, "dream")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("the header is wrong"), "the header is wrong"),
        (ValueError("truncated"), "truncated"),
        (KeyError("my layer"), "KeyError: 'my layer', so it is damaged, cut short, or something else"),
        (KeyError(110), "KeyError: 110, so it is damaged, cut short, or something else"),
        (EOFError(), "EOFError, so it is damaged, cut short, or something else"),
    ],
)
def test_a_file_that_is_not_accepted_is_told_in_words(tmp_path: Path, error: Exception, reason: str) -> None:
    file = tmp_path / "model.pkl"
    file.write_bytes(b"nonsense")
    told = str(broken_file(str(file), "a pickle", error))
    assert told == f"'{file}' (8 bytes) could not be loaded as a pickle: {reason}"
