"""Models written for Gaudi on a server whose devices are Gaudis: each worker gets one for itself. Nothing is computed,
so the devices need not be there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gaudi_server import GaudiServer, copy_template

VARIABLES = ("HABANA_VISIBLE_MODULES", "TRIREME_DEVICE", "PT_HPU_LAZY_MODE")
TELLS_VARIABLES = f"""import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        values = np.array([os.environ.get(name, "") for name in {VARIABLES!r}], dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values)]) for _ in requests]
"""


def write_models(folder: Path) -> None:
    for name in ("qwen2", "llama2"):
        copy_template(folder, name)
        (folder / "model_repository" / name / "1" / "model.py").write_text(TELLS_VARIABLES)  # names no device


def variables_of(server: GaudiServer, name: str) -> list[str]:
    body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}
    status, _, answer = server.ask("POST", f"/v2/models/{name}/infer", body)
    assert status == 200, answer
    return list(json.loads(answer)["outputs"][0]["data"])


def test_every_worker_sees_a_gaudi_of_its_own(tmp_path: Path) -> None:
    write_models(tmp_path)
    with GaudiServer(tmp_path, variables={"TRIREME_DEVICES": "hpu:2"}) as server:
        server.wait_until_listening()
        seen = [variables_of(server, name) for name in ("qwen2", "llama2")]
    assert sorted(modules for modules, _, _ in seen) == ["0", "1"]
    assert [rest for _, *rest in seen] == [["hpu:0", "1"]] * 2


def test_more_models_than_gaudis_is_told_with_the_owner(tmp_path: Path) -> None:
    write_models(tmp_path)
    with GaudiServer(tmp_path, "--exit-on-error=false", variables={"TRIREME_DEVICES": "hpu:1"}) as server:
        server.wait_until_listening()
        index = server.index()
    assert sorted(entry["state"] for entry in index.values()) == ["READY", "UNAVAILABLE"]
    (reason,) = [entry["reason"] for entry in index.values() if entry["state"] == "UNAVAILABLE"]
    (owner,) = [name for name, entry in index.items() if entry["state"] == "READY"]
    assert "none is free: hpu 0 belongs to model '" + owner in reason
    assert "parameter 'device'" in reason


@pytest.mark.parametrize("device", ["cpu", "hpu:1"])
def test_the_parameter_chooses_the_device(tmp_path: Path, device: str) -> None:
    write_models(tmp_path)
    config = tmp_path / "model_repository" / "qwen2" / "config.pbtxt"
    config.write_text(config.read_text().replace('string_value: "hpu,cuda,cpu"', f'string_value: "{device}"'))
    with GaudiServer(tmp_path, variables={"TRIREME_DEVICES": "hpu:2"}) as server:
        server.wait_until_listening()
        modules, name, _ = variables_of(server, "qwen2")
    assert (modules, name) == (("", "cpu") if device == "cpu" else ("1", "hpu:0"))
