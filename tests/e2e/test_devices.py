"""Models placed on devices, as a user sees it: what workers are told, who owns what, errors, metrics, the command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, write_model

TELLING = """
import json, os
import numpy as np
import triton_python_backend_utils as pb_utils

DEVICE = "%s"
NAMES = ("TRIREME_DEVICE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HABANA_VISIBLE_MODULES", "PT_HPU_LAZY_MODE",
         "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURONCORE_GROUP_SIZES")
BEFORE = {name: os.environ[name] for name in NAMES if name in os.environ}

class TritonPythonModel:
    def initialize(self, args):
        self.told = {key: args[key] for key in ("model_instance_kind", "model_instance_device_id",
                                                "model_instance_name")}

    def execute(self, requests):
        text = json.dumps({**self.told, "variables": BEFORE, "pid": os.getpid()})
        if any(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0] for request in requests):
            os._exit(1)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text.encode()], dtype=object))])
                for request in requests]
"""
CONFIG = """backend: "python"
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }]
"""
DEVICE_PARAMETER = 'parameters { key: "device" value: { string_value: "%s" } }\n'
HPU_ERROR = (
    "needs 1 of the 1 Gaudi accelerators (HPUs), which one process owns at a time, and none is free: hpu 0 belongs to "
    "model 'gaudi' version 1, instance 'gaudi_0_0'. Unload one of these models"
)


def place(folder: Path, name: str, groups: str = "", device: str = "", source: str = "cpu") -> None:
    parameter = DEVICE_PARAMETER % device if device else ""
    write_model(folder, name, TELLING % source, CONFIG + groups + "\n" + parameter)


def ask(server: RunningServer, model: str, value: int = 0) -> tuple[int, dict[str, Any]]:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}
    status, _, body = server.ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})
    return status, json.loads(body)


def told(server: RunningServer, model: str) -> dict[str, Any]:
    status, answer = ask(server, model)
    assert status == 200, answer
    return dict(json.loads(answer["outputs"][0]["data"][0]))


def told_by_all(server: RunningServer, model: str, count: int) -> list[dict[str, Any]]:
    """What each of the instances says: idle ones are asked in turn."""
    found: dict[str, dict[str, Any]] = {}
    for _ in range(count * 4):
        answer = told(server, model)
        found[answer["model_instance_name"]] = answer
    assert len(found) == count
    return [found[name] for name in sorted(found)]


def load(server: RunningServer, model: str) -> tuple[int, str]:
    status, _, body = server.ask("POST", f"/v2/repository/models/{model}/load")
    return status, json.loads(body)["error"] if status != 200 else ""


def count_instances(server: RunningServer, count: int) -> None:
    """Changes nothing else, so that instances come and go in place."""
    group = f"instance_group [{{ kind: KIND_CPU count: {count} }}]"
    text = f"{CONFIG}{group}\n{DEVICE_PARAMETER % 'hpu'}"
    (server.log_path.parent / "model_repository/gaudi/config.pbtxt").write_text(text)


class Traffic:
    """Clients that ask the model again and again while the block runs."""

    def __init__(self, server: RunningServer, model: str) -> None:
        self.statuses: set[int] = set()
        self.refusals: list[dict[str, Any]] = []
        self._server, self._model = server, model
        self._is_over = threading.Event()
        self._clients = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self) -> Traffic:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for client in self._clients:
            client.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            status, answer = ask(self._server, self._model)
            self.statuses.add(status)
            if status != 200:
                self.refusals.append(answer)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("devices")
    place(folder, "everywhere")
    place(folder, "second", "instance_group [{ kind: KIND_GPU gpus: [ 1 ] count: 2 }]")
    place(folder, "processor", "instance_group [{ kind: KIND_CPU }]", source="hpu")  # which nobody looks for
    place(folder, "chosen", "instance_group [{ kind: KIND_CPU }]", device="cuda:1")
    place(folder, "held_back", "instance_group [{ kind: KIND_GPU }]", device="cpu")
    place(folder, "gaudi", "instance_group [{ kind: KIND_CPU }]", device="hpu")
    place(folder, "cores", "instance_group [{ kind: KIND_MODEL count: 2 }]", device="neuron:2-5")
    place(folder, "core", device="neuron")
    place(folder, "late_gaudi", device="hpu")
    place(folder, "no_gpu", "instance_group [{ kind: KIND_GPU gpus: [ 7 ] }]")
    names = ("everywhere", "second", "processor", "chosen", "held_back", "gaudi", "cores", "core")
    flags = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in names)]
    with RunningServer(folder, "--devices=cuda:2@24GiB,hpu:1,neuron:2x4", *flags) as server:
        server.wait_until_listening()
        yield server


def test_model_without_a_group_has_an_instance_on_every_gpu(served: RunningServer) -> None:
    answers = told_by_all(served, "everywhere", 2)
    assert [answer["model_instance_kind"] for answer in answers] == ["GPU", "GPU"]
    assert [answer["model_instance_device_id"] for answer in answers] == ["0", "1"]
    assert [answer["variables"]["TRIREME_DEVICE"] for answer in answers] == ["cuda:0", "cuda:1"]
    assert [answer["variables"]["CUDA_VISIBLE_DEVICES"] for answer in answers] == ["0,1", "0,1"]


def test_group_chooses_its_gpus(served: RunningServer) -> None:
    for answer in told_by_all(served, "second", 2):
        assert answer["model_instance_device_id"] == "1"
        visible = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert answer["variables"] == {"TRIREME_DEVICE": "cuda:1", **visible}


def test_group_of_the_processor_gets_no_device(served: RunningServer) -> None:
    answer = told(served, "processor")
    assert (answer["model_instance_kind"], answer["variables"]) == ("CPU", {"TRIREME_DEVICE": "cpu"})


def test_parameter_comes_before_the_kind_of_the_group(served: RunningServer) -> None:
    answer = told(served, "chosen")
    assert (answer["model_instance_kind"], answer["model_instance_device_id"]) == ("GPU", "1")
    answer = told(served, "held_back")
    assert (answer["model_instance_kind"], answer["variables"]) == ("CPU", {"TRIREME_DEVICE": "cpu"})
    config = json.loads(served.ask("GET", "/v2/models/held_back/config")[2])
    assert config["instance_group"][0]["kind"] == "KIND_CPU"
    assert config["instance_group"][0]["gpus"] == []


def test_model_that_asks_for_a_gaudi_gets_one(served: RunningServer) -> None:
    answer = told(served, "gaudi")
    assert answer["model_instance_kind"] == "MODEL"
    assert answer["variables"] == {
        "TRIREME_DEVICE": "hpu:0",
        "HABANA_VISIBLE_MODULES": "0",
        "PT_HPU_LAZY_MODE": "1",
    }


def test_instances_share_out_a_range_of_cores(served: RunningServer) -> None:
    variables = [answer["variables"] for answer in told_by_all(served, "cores", 2)]
    assert [entry["NEURON_RT_VISIBLE_CORES"] for entry in variables] == ["2-3", "4-5"]
    assert {entry["TRIREME_DEVICE"] for entry in variables} == {"neuron:0-1"}
    assert {entry["NEURON_RT_NUM_CORES"] for entry in variables} == {"2"}
    assert {entry["NEURONCORE_GROUP_SIZES"] for entry in variables} == {"1,1"}
    single = told(served, "core")
    assert single["model_instance_kind"] == "MODEL"
    assert single["variables"]["TRIREME_DEVICE"] == "neuron:0"
    assert single["variables"]["NEURON_RT_VISIBLE_CORES"] not in {"2", "3", "4", "5"}


def test_gpu_that_is_not_there_is_refused_as_triton_does(served: RunningServer) -> None:
    status, error = load(served, "no_gpu")
    assert status == 400
    assert "instance group no_gpu_0 of model no_gpu specifies invalid or unsupported gpu id 7." in error


def test_more_models_than_devices_are_told_who_holds_them(served: RunningServer) -> None:
    status, error = load(served, "late_gaudi")
    assert status == 400
    assert f"instance 'late_gaudi_0' of model 'late_gaudi' {HPU_ERROR}" in error


def test_dead_worker_comes_back_on_its_device(served: RunningServer) -> None:
    before = told(served, "gaudi")
    assert ask(served, "gaudi", 1)[0] == 500
    served.until(lambda: ask(served, "gaudi")[0] == 200)
    after = told(served, "gaudi")
    assert after["pid"] != before["pid"]
    assert after["variables"] == before["variables"]


def test_requests_wait_while_a_reload_without_a_spare_device_ends_the_old_copy_first(served: RunningServer) -> None:
    before = told(served, "gaudi")
    path = served.log_path.parent / "model_repository/gaudi/1/model.py"
    with Traffic(served, "gaudi") as traffic:
        for change in range(3):
            path.write_text(path.read_text() + f"# change {change}\n")
            assert load(served, "gaudi") == (200, "")
    assert traffic.statuses == {200}, traffic.refusals
    after = told(served, "gaudi")
    assert after["pid"] != before["pid"]
    assert after["variables"] == before["variables"]
    assert "model 'gaudi' needs the device that it has for its next copy, and no other is free" in served.log


def test_new_version_takes_the_only_device_from_the_old_one(tmp_path: Path) -> None:
    place(tmp_path, "gaudi", "instance_group [{ kind: KIND_CPU }]", device="hpu")
    flags = ("--model-control-mode=explicit", "--load-model=gaudi")
    with RunningServer(tmp_path, "--devices=hpu:1", *flags) as server:
        server.wait_until_listening()
        folder = tmp_path / "model_repository/gaudi"
        shutil.copytree(folder / "1", folder / "2")
        assert load(server, "gaudi") == (200, "")
        versions = json.loads(server.ask("POST", "/v2/repository/index")[2])
        assert {entry["version"]: entry["state"] for entry in versions} == {"1": "UNAVAILABLE", "2": "READY"}
        # A copy that shall stay does not make way for another version of the model.
        config = folder / "config.pbtxt"
        config.write_text(config.read_text() + "version_policy { all {} }\n")
        status, error = load(server, "gaudi")
        assert status == 400
        assert "hpu 0 belongs to model 'gaudi' version 2" in error
        assert ask(server, "gaudi")[0] == 200
        # One that made way comes back where the next cannot be loaded, and nobody is refused meanwhile.
        config.write_text(config.read_text().replace("all {}", "latest { num_versions: 1 }"))
        assert load(server, "gaudi") == (200, "")
        source = (folder / "2/model.py").read_text()
        shutil.copytree(folder / "2", folder / "3")
        (folder / "3/model.py").write_text(
            source.replace("self.told =", "raise RuntimeError('no weights')\n        self.told =")
        )
        with Traffic(server, "gaudi") as traffic:
            status, error = load(server, "gaudi")
        assert (status, "no weights" in error) == (400, True)
        assert "the previous copy, version 2, was loaded again" in error
        assert traffic.statuses == {200}, traffic.refusals
        entries = {entry["version"]: entry for entry in json.loads(server.ask("POST", "/v2/repository/index")[2])}
        assert (entries["2"]["state"], entries["3"]["state"]) == ("READY", "UNAVAILABLE")
        assert "no weights" in entries["2"]["reason"]
        # Where its files are broken by now it cannot; the next load that succeeds brings the model back.
        shutil.rmtree(folder / "3")
        (folder / "2/model.py").write_text("no python " + source)
        status, error = load(server, "gaudi")
        assert (status, "the previous copy could not be loaded again" in error) == (400, True)
        assert ask(server, "gaudi")[0] == 404
        (folder / "2/model.py").write_text(source)
        assert load(server, "gaudi") == (200, "")
        assert ask(server, "gaudi")[0] == 200


def test_unloaded_model_gives_its_device_to_the_next(served: RunningServer) -> None:
    assert served.ask("POST", "/v2/repository/models/gaudi/unload")[0] == 200
    # At once: the load waits until the process of the other has ended.
    assert load(served, "late_gaudi") == (200, "")
    assert told(served, "late_gaudi")["variables"]["HABANA_VISIBLE_MODULES"] == "0"
    status, error = load(served, "gaudi")
    assert status == 400
    assert "belongs to model 'late_gaudi'" in error
    assert served.ask("POST", "/v2/repository/models/late_gaudi/unload")[0] == 200
    assert load(served, "gaudi") == (200, "")


def test_metrics_know_what_a_simulated_device_is_said_to_have(served: RunningServer) -> None:
    total = served.metric("nv_gpu_memory_total_bytes")
    assert total == {
        (("gpu_uuid", "GPU-simulated-0"),): 24.0 * (1 << 30),
        (("gpu_uuid", "GPU-simulated-1"),): 24.0 * (1 << 30),
    }
    page = served.metrics_page()
    assert "# TYPE nv_gpu_memory_total_bytes gauge" in page
    assert "nv_gpu_utilization" not in page
    assert served.value("nv_cpu_memory_total_bytes") > 0


def test_reload_with_a_spare_device_moves_over(tmp_path: Path) -> None:
    place(tmp_path, "gaudi", "instance_group [{ kind: KIND_CPU }]", device="hpu")
    flags = ("--model-control-mode=explicit", "--load-model=gaudi", "--allow-gpu-metrics=false")
    with RunningServer(tmp_path, "--devices=hpu:2@96GiB", *flags) as server:
        server.wait_until_listening()
        seen = []
        for _ in range(3):
            path = tmp_path / "model_repository/gaudi/1/model.py"
            path.write_text(path.read_text() + "# changed\n")
            assert load(server, "gaudi") == (200, "")
            seen.append(told(server, "gaudi")["variables"]["HABANA_VISIBLE_MODULES"])
        assert seen == ["1", "0", "1"]
        count_instances(server, 2)
        assert load(server, "gaudi") == (200, "")
        both = told_by_all(server, "gaudi", 2)
        assert {answer["variables"]["HABANA_VISIBLE_MODULES"] for answer in both} == {"0", "1"}
        count_instances(server, 1)
        assert load(server, "gaudi") == (200, "")
        path.write_text(path.read_text() + "# changed\n")
        assert load(server, "gaudi") == (200, "")
        count_instances(server, 3)
        status, error = load(server, "gaudi")
        assert status == 400
        assert "instance 'gaudi_0_2' of model 'gaudi' needs 1 of the 2 Gaudi accelerators" in error
        told_by_all(server, "gaudi", 1)
        assert "nv_gpu" not in server.metrics_page()
        assert server.interrupt(signal.SIGTERM) == 0


def test_kind_gpu_without_gpus_is_refused_and_gaudi_code_stays_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, "wants_gpu", "instance_group [{ kind: KIND_GPU }]")
    place(tmp_path, "wants_hpu", device="hpu:0")
    place(tmp_path, "gaudi", source="hpu")
    monkeypatch.setenv("TRIREME_DEVICES", "cpu")
    with RunningServer(tmp_path, "--exit-on-error=false") as server:
        server.wait_until_listening()
        index = server.index()
        gpu_error = "instance group wants_gpu_0 of model wants_gpu has kind KIND_GPU but no GPUs are available"
        assert gpu_error in index["wants_gpu"]["reason"]
        assert "asks for device 'hpu:0', which is not among the server's devices: cpu" in index["wants_hpu"]["reason"]
        assert told(server, "gaudi")["variables"] == {"TRIREME_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def test_malformed_devices_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "model_repository").mkdir()
    with RunningServer(tmp_path, "--devices=cuda:2,tpu:1") as server:
        assert server.process.wait(20) == 1
        assert "'tpu:1' of --devices (or TRIREME_DEVICES) 'cuda:2,tpu:1' is not a device; valid forms are" in server.log


def test_command_lists_devices() -> None:
    command = [str(Path(sys.executable).with_name("trireme")), "devices"]
    variables = {**os.environ, "TRIREME_DEVICES": "cuda:1@80GiB,hpu:1,neuron:1x2"}
    variables.pop("PT_HPU_LAZY_MODE", None)
    table = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    assert "| cuda:0 " in table
    assert "| 80.0 GiB |" in table
    listed = json.loads(subprocess.run([*command, "--json"], env=variables, capture_output=True, check=True).stdout)
    assert [entry["device"] for entry in listed] == ["cpu", "cuda:0", "hpu:0", "neuron:0"]
    assert listed[2]["environment"] == {
        "TRIREME_DEVICE": "hpu:0",
        "HABANA_VISIBLE_MODULES": "0",
        "PT_HPU_LAZY_MODE": "1",
    }
    assert listed[3]["core_count"] == 2
    failed = subprocess.run([*command, "--devices=cuda:0"], env=variables, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "must count between 1 and" in failed.stderr
