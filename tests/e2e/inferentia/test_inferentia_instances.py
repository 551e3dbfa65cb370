"""Several instances of a model on NeuronCores: which cores each gets, seen from inside its process."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from neuron_journey import generate, infer, make_classifier, random_images, unsplit
from running_server import RunningServer, write_model

WATCHED = "rn50-watched"
NUMBERED = "rn50-numbered"
SELF_PLACED = "self-placed"
WATCHED_MODEL = """import os

from trireme.backends.neuron.model import TritonPythonModel as NeuronModel


class TritonPythonModel(NeuronModel):
    def initialize(self, args):
        super().initialize(args)
        print(f"PLACED {os.getpid()} {args['model_instance_name']} {os.environ['NEURON_RT_VISIBLE_CORES']}")
"""
SELF_PLACED_CONFIG = """
backend: "python"
max_batch_size: 0

input [
  {
    name: "INPUT__0"
    data_type: TYPE_FP32
    dims: [-1, 2]
  }
]

output [
  {
    name: "OUTPUT__0"
    data_type: TYPE_FP32
    dims: [-1, 2]
  }
]

instance_group [
    {
        kind: KIND_MODEL
        count: 4
    }
]
parameters: {key: "COMPILED_MODEL", value: {string_value: "/models/compiled.pt"}}\x20
parameters: {key: "NEURON_CORE_START_INDEX", value: {string_value: "0"}}\x20
parameters: {key: "NEURON_CORE_END_INDEX", value: {string_value: "15"}}\x20
parameters: {key: "NUM_THREADS_PER_CORE", value: {string_value: "1"}}\x20
"""
"""As Triton's generator for Inferentia lays it out, blanks at the ends of lines included."""
SELF_PLACED_MODEL = """import json
import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        (group,) = config["instance_group"]
        first, last = (
            int(config["parameters"][f"NEURON_CORE_{end}_INDEX"]["string_value"]) for end in ("START", "END")
        )
        share = (last - first + 1) // group["count"]
        begin = first + int(args["model_instance_name"].split("_")[-1]) * share
        os.environ["NEURON_RT_VISIBLE_CORES"] = f"{begin}-{begin + share - 1}"
        print(f"PLACED {os.getpid()} {args['model_instance_name']} {os.environ['NEURON_RT_VISIBLE_CORES']}")

    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "INPUT__0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT__0", array)]) for array in given]
"""
FOUR_SHARES = ["0-3", "4-7", "8-11", "12-15"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("instances")
    make_classifier(folder, "onnx")
    printed = generate(folder, "onnx", "--triton_model_instance_count", "4", "--python_model", name=WATCHED)
    assert "instances: 4, with 4 cores each" in printed
    (folder / "model_repository" / WATCHED / "1" / "model.py").write_text(WATCHED_MODEL)
    numbered = ("INPUT__0,FP32,-1x224x224x3", "OUTPUT__0,FP32,-1x1000")
    generate(folder, "onnx", "--python_model", name=NUMBERED, tensors=numbered)
    write_model(folder, SELF_PLACED, SELF_PLACED_MODEL, SELF_PLACED_CONFIG)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder, "--devices=cpu") as running:
        running.wait_until_listening()
        yield running


@pytest.mark.parametrize("model", [WATCHED, SELF_PLACED])
def test_every_instance_has_its_share_of_the_cores(server: RunningServer, model: str) -> None:
    found = re.findall(rf"PLACED (\d+) {model}_0_(\d) (\S+)", server.log)
    by_index = {int(index): cores for _, index, cores in found}
    assert [by_index[index] for index in range(4)] == FOUR_SHARES
    pids = {int(pid) for pid, _, _ in found}
    assert len(pids) == 4
    assert pids <= set(server.children())


def test_numbered_names_mean_places_and_the_generated_file_runs(server: RunningServer, folder: Path) -> None:
    images = random_images(5)
    answered = infer(server.ports["http"], images, model=NUMBERED, names=("INPUT__0", "OUTPUT__0"))
    np.testing.assert_allclose(answered, unsplit(folder / "rn50", "onnx", images), rtol=1e-5, atol=1e-5)


def test_server_ends_cleanly_while_models_hold_cores(folder: Path) -> None:
    with RunningServer(folder, "--devices=cpu") as running:
        running.wait_until_listening()
        workers = running.children()
        assert running.interrupt(signal.SIGTERM) == 0
        assert not any(Path(f"/proc/{pid}/comm").exists() for pid in workers)


@pytest.mark.usefixtures("fresh_interpreters")  # what a forked worker was given is not what the system shows of it
def test_server_that_has_neuron_cores_books_them_before_the_process_starts(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "rn50").symlink_to(folder / "rn50")
    generate(tmp_path, "onnx", "--triton_model_instance_count", "4", name="first")
    generate(tmp_path, "onnx", name="second")
    with RunningServer(tmp_path, "--devices=neuron:4x4", "--exit-on-error=false") as running:
        running.wait_until_listening()
        states = {name: entry["state"] for name, entry in running.index().items()}
        assert sorted(states.values()) == ["READY", "UNAVAILABLE"]  # both want all sixteen
        (ready,) = [name for name, state in states.items() if state == "READY"]
        expected = FOUR_SHARES if ready == "first" else ["0-15"]
        told = [_variable(pid, "NEURON_RT_VISIBLE_CORES") for pid in running.children()]
        assert sorted(told) == sorted(expected)
        images = random_images(6)
        answered = infer(running.ports["http"], images, model=ready)
        np.testing.assert_allclose(answered, unsplit(folder / "rn50", "onnx", images), rtol=1e-5, atol=1e-5)


def _variable(pid: int, name: str) -> str:
    """As the process was given it when it started."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)[name]
