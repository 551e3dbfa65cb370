"""A model file that spreads its batches with `torch.neuron.DataParallel`, where there are no NeuronCores."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

CONFIG = """
backend: "python"
input [ { name: "A__0" data_type: TYPE_FP32 dims: [ -1, 3 ] }, { name: "B__1" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
output [ { name: "SUM__0" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
output [ { name: "ROWS__1" data_type: TYPE_INT64 dims: [ -1 ] } ]
instance_group [ { kind: KIND_MODEL count: 1 } ]
parameters: { key: "COMPILED_MODEL" value: { string_value: "%s" } }
"""
MODEL = """
import json

import torch
import torch.neuron
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        path = json.loads(args["model_config"])["parameters"]["COMPILED_MODEL"]["string_value"]
        self.model = torch.neuron.DataParallel(torch.jit.load(path), device_ids=list(range(4)))
        self.model.num_workers = 8

    def execute(self, requests):
        responses = []
        for request in requests:
            given = [torch.tensor(pb_utils.get_input_tensor_by_name(request, name).as_numpy())
                     for name in ("A__0", "B__1")]
            answers = zip(("SUM__0", "ROWS__1"), self.model(*given))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor(name, value.numpy())
                                                         for name, value in answers]))
        return responses
"""


def save_model(path: Path) -> None:
    """Its answers need gradients unless somebody says that they do not, and tell how many rows a call had."""
    torch = pytest.importorskip("torch")

    class Sum(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, a: Any, b: Any) -> tuple[Any, Any]:
            each = torch.ones_like(a[:, 0], dtype=torch.int64)
            return a * self.weight + b, each * each.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and what the Neuron compiler writes
        torch.jit.trace(Sum(), (torch.rand(2, 3), torch.rand(2, 3))).save(str(path))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    save_model(tmp_path / "sum.pt")
    repository = tmp_path / "models"
    (place(repository, "sum", CONFIG % (tmp_path / "sum.pt")) / "model.py").write_text(MODEL)
    return repository


def test_batches_are_cut_for_the_cores_and_come_back_whole(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        for rows, slices in ((8, [2] * 8), (5, [2, 2, 1, 1, 1]), (3, [1] * 3), (1, [1])):
            a = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
            outputs = await served.ask("sum", A__0=a, B__1=10 * a)
            np.testing.assert_array_equal(outputs["SUM__0"], 11 * a)
            assert outputs["ROWS__1"].tolist() == slices
        response = await served.answer("sum", {"A__0": a, "B__1": np.concatenate([a, a])})
        assert response.error is not None
        assert "the inputs must have the same size along dimension 0, found [1, 2]" in response.error.message

    serve(repository, scenario, compat=("neuron",))


def test_who_does_not_ask_for_the_cpu_is_told_what_to_install(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        told = await load_error(served, "sum")
        assert "'torch_neuron' is not installed. On a machine with NeuronCores install torch-neuron" in told
        assert "--devices=cpu, or compat 'neuron', serves the model" in told

    serve(repository, scenario, models=())
