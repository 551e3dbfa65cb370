"""The neuron backend in its worker process: batches spread over replicas, types, names, and clear errors."""

from __future__ import annotations

import asyncio
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, add_onnx, load_error, place, serve

TENSORS = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ %s3 ] }, { name: "B" data_type: TYPE_FP32 dims: [ %s3 ] } ]
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ %s3 ] }, { name: "DIFF" data_type: TYPE_%s dims: [ %s3 ] } ]
"""


def config(
    *, batch_size: int = 0, count: int = 1, cores: int = 8, tensors: bool = True, diff: str = "FP32", **extra: object
) -> str:
    dims = "" if batch_size else "-1, "
    parameters = {"NEURON_CORE_START_INDEX": 0, "NEURON_CORE_END_INDEX": cores - 1, "NUM_THREADS_PER_CORE": 1, **extra}
    text = f'backend: "neuron"\nmax_batch_size: {batch_size}\n'
    text += TENSORS % (dims, dims, dims, diff, dims) if tensors else ""
    text += f"instance_group [ {{ kind: KIND_MODEL count: {count} }} ]\n"
    lines = [
        f'parameters: {{key: "{key}", value: {{string_value: "{value}"}}}} \n' for key, value in parameters.items()
    ]
    return text + "".join(lines)


def add_model(repository: Path, name: str, text: str, **onnx: Any) -> Path:
    folder = place(repository, name, text)
    add_onnx(folder / "add.onnx", **onnx)
    return folder


def numbers(rows: int) -> tuple[Any, Any]:
    a = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    return a, a[::-1] * 3


def test_batches_of_any_size_come_back_whole_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # so that the CPU cuts a batch into four slices
    add_model(tmp_path, "add", config(COMPILED_MODEL="add.onnx"))
    add_model(tmp_path, "fixed", config(COMPILED_MODEL="1/add.onnx"), first_dim=4)
    add_model(tmp_path, "given", config(COMPILED_MODEL="$$TRITON_MODEL_DIRECTORY/1/add.onnx", COMPILED_BATCH_SIZE=2))

    async def scenario(served: Served) -> None:
        for model in ("add", "fixed", "given"):
            for rows in (1, 3, 8, 17):
                a, b = numbers(rows)
                outputs = await served.ask(model, A=a, B=b)
                np.testing.assert_array_equal(outputs["SUM"], a + b)
                np.testing.assert_array_equal(outputs["DIFF"], a - b)

    serve(tmp_path, scenario)


def test_requests_of_a_batch_get_their_own_rows(tmp_path: Path) -> None:
    batching = "dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 200000 }\n"
    add_model(tmp_path, "joined", batching + config(batch_size=8, COMPILED_MODEL="add.onnx"))
    add_model(
        tmp_path,
        "apart",
        batching + config(batch_size=8, COMPILED_MODEL="add.onnx", DISABLE_BATCH_REQUESTS_TO_NEURON="true"),
    )

    async def scenario(served: Served) -> None:
        for model in ("joined", "apart"):
            given = [(np.full((2, 3), n, np.float32), np.full((2, 3), 10 * n, np.float32)) for n in range(4)]
            answers = await asyncio.gather(*(served.ask(model, A=a, B=b) for a, b in given))
            for answer, (a, b) in zip(answers, given, strict=True):
                np.testing.assert_array_equal(answer["SUM"], a + b)
            assert served.execution_count(model) < 4

    serve(tmp_path, scenario)


def test_outputs_have_the_type_that_the_configuration_says(tmp_path: Path) -> None:
    add_model(tmp_path, "half", config(diff="FP16", COMPILED_MODEL="add.onnx"))
    add_model(tmp_path, "brain", config(diff="BF16", COMPILED_MODEL="add.onnx"))

    async def scenario(served: Served) -> None:
        a, b = numbers(4)
        half = await served.ask("half", A=a, B=b)
        assert half["DIFF"].dtype == np.float16
        np.testing.assert_array_equal(half["DIFF"], (a - b).astype(np.float16))
        response = await served.answer("brain", {"A": a, "B": b})
        (diff,) = [tensor for tensor in response.outputs if tensor.name == "DIFF"]
        assert diff.datatype == "BF16"
        bits = np.frombuffer(diff.data, np.uint16).astype(np.uint32) << 16
        np.testing.assert_array_equal(bits.view(np.float32).reshape(a.shape), a - b)  # small whole numbers are exact

    serve(tmp_path, scenario)


def test_tensors_are_read_from_an_onnx_file(tmp_path: Path) -> None:
    add_model(tmp_path, "add", config(tensors=False, COMPILED_MODEL="add.onnx"))

    async def scenario(served: Served) -> None:
        message = served.config("add")
        assert message.max_batch_size == 0
        assert [(entry.name, list(entry.dims)) for entry in message.input] == [("A", [-1, 3]), ("B", [-1, 3])]
        a, b = numbers(20)
        np.testing.assert_array_equal((await served.ask("add", A=a, B=b))["SUM"], a + b)

    serve(tmp_path, scenario)


def test_wrong_requests_are_refused_and_the_model_goes_on(tmp_path: Path) -> None:
    add_model(tmp_path, "add", config(COMPILED_MODEL="add.onnx"))

    async def scenario(served: Served) -> None:
        a, b = numbers(2)
        response = await served.answer("add", {"A": a, "B": np.concatenate([b, b])})
        assert response.error is not None
        assert "the inputs must have the same first dimension" in response.error.message
        np.testing.assert_array_equal((await served.ask("add", A=a, B=b))["DIFF"], a - b)

    serve(tmp_path, scenario)


def test_load_errors_say_what_to_do(tmp_path: Path) -> None:
    good = {"COMPILED_MODEL": "add.onnx"}
    cases: dict[str, tuple[str, str]] = {
        "nothing": (config(), "needs the parameter 'COMPILED_MODEL'"),
        "absent": (config(COMPILED_MODEL="gone.pt"), "COMPILED_MODEL of model 'absent' is not there: there is no '"),
        "typed": (config(**good, MODEL_TYPE="caffe"), "must be 'pytorch', 'tensorflow' or 'onnx', found 'caffe'"),
        "crowded": (config(count=3, cores=2, **good), "has 3 instances for 2 NeuronCores (0 to 1)"),
        "endless": (config(cores=10**11, **good), "NEURON_CORE_END_INDEX 99999999999, and no machine has so many"),
        "named": (config(**good).replace('"SUM"', '"TOTAL"'), "has no output 'TOTAL', only 'SUM', 'DIFF'"),
        "script": (config(**good, MODEL_TYPE="pytorch"), "could not be loaded as a TorchScript model"),
        "silent": (config(tensors=False, **good, MODEL_TYPE="pytorch"), "must list its inputs and outputs"),
    }
    for name, (text, _) in cases.items():
        add_model(tmp_path, name, text)

    async def scenario(served: Served) -> None:
        for name, (_, words) in cases.items():
            assert words in await load_error(served, name)

    serve(tmp_path, scenario, models=())


def test_saved_model_without_tensorflow_names_the_package(tmp_path: Path) -> None:
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        folder = place(tmp_path, "saved", config(COMPILED_MODEL="saved"))
        (folder / "saved").mkdir()

        async def scenario(served: Served) -> None:
            assert (
                "this model needs the package 'tensorflow', which is not installed; install it with: pip install -c "
                "constraints.txt '.[tensorflow]' in the folder of the clone"
            ) in await load_error(served, "saved")

        serve(tmp_path, scenario, models=())
    else:
        pytest.skip("tensorflow is installed")


def test_file_compiled_for_neuron_names_the_library_it_needs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = place(tmp_path, "compiled", config(COMPILED_MODEL="m.pt"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(torch.nn.ReLU(), torch.rand(2, 3)).save(str(tmp_path / "plain.pt"))
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(folder / "m.pt", "w") as changed:
        for entry in plain.infolist():
            data = plain.read(entry).replace(b"torch.relu(", b"ops.neuron.forward_v2_1(")
            changed.writestr(entry.filename, data)

    async def scenario(served: Served) -> None:
        error = await load_error(served, "compiled")
        assert "was compiled for NeuronCores and needs the package 'torch_neuron' or 'torch_neuronx'" in error
        assert "install torch-neuronx from" in error

    serve(tmp_path, scenario, models=())
