"""Warm-up of a real server: what cannot run is refused with the reason, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from running_server import INT_CONFIG, RunningServer, write_model

ECHO = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]) for values in inputs]
"""

BATCHES = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.batches = []

    def execute(self, requests):
        self.batches.append([len(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()) for request in requests])
        seen = np.array([[repr(self.batches).encode()]], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", seen)]) for _ in requests]
"""
BATCHES_CONFIG = """
backend: "python"
max_batch_size: 4
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }]
"""


def sample(
    dims: str = "4", datatype: str = "INT32", data: str = "zero_data: true", batch_size: int = 1, count: int = 1
) -> str:
    entry = f"data_type: TYPE_{datatype} dims: [ {dims} ] {data}"
    sizes = f"batch_size: {batch_size} count: {count}"
    return f'model_warmup [{{ name: "first" {sizes} inputs {{ key: "IN" value {{ {entry} }} }} }}]\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("warmup")
    passive = "instance_group [{ count: 1 kind: KIND_CPU passive: true }]\n"
    configs = {
        "good": sample(),
        "other_type": sample(datatype="FP32"),
        "too_large": sample(dims="4611686018427387904"),
        "outside": sample(data='input_data_file: "../1/model.py"'),
        "passive": passive + sample(),
    }
    for name, text in configs.items():
        write_model(folder, name, ECHO, INT_CONFIG + text)
    write_model(folder, "batches", BATCHES, BATCHES_CONFIG + sample(dims="1", batch_size=3, count=2))
    with RunningServer(folder, "--model-control-mode=explicit") as running:
        running.wait_until_listening()
        yield running


def load(server: RunningServer, model: str) -> tuple[int, str]:
    status, _, body = server.ask("POST", f"/v2/repository/models/{model}/load")
    return status, json.loads(body)["error"] if body else ""


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("other_type", "inference input 'IN' data-type is 'FP32', but model 'other_type' expects 'INT32'"),
        ("too_large", "input 'IN' for model 'too_large' takes 18446744073709551616 bytes for all rows"),
        ("outside", "warmup data file '../1/model.py' must stay within the model's folder 'warmup'"),
    ],
)
def test_sample_that_cannot_run_is_refused(server: RunningServer, model: str, reason: str) -> None:
    status, error = load(server, model)
    assert status == 400
    assert f"Invalid argument: failed to run warmup sample 'first': {reason}" in error
    assert server.index()[model]["state"] == "UNAVAILABLE"


def test_model_that_could_not_take_requests_is_refused(server: RunningServer) -> None:
    status, error = load(server, "passive")
    assert status == 400
    assert "all instance groups of model passive are passive" in error


def test_good_sample_runs_before_the_first_request(server: RunningServer) -> None:
    assert load(server, "good") == (200, "")
    assert server.statistics("good")["execution_count"] == 1
    assert server.infer("good", 7)[1]["outputs"][0]["data"] == [7]


def test_requests_of_a_sample_reach_the_model_in_one_call(server: RunningServer) -> None:
    assert load(server, "batches") == (200, "")
    statistics = server.statistics("batches")
    assert (statistics["inference_count"], statistics["execution_count"]) == (6, 2)
    assert statistics["inference_stats"]["success"]["count"] == 6
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [7]}]}
    _, _, answer = server.ask("POST", "/v2/models/batches/infer", body)
    assert json.loads(answer)["outputs"][0]["data"] == ["[[1, 1, 1], [1, 1, 1], [1]]"]
