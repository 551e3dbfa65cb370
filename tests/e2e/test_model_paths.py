"""Files that a configuration names outside of its model's folder, and files of loads that failed, at a real server."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest
from running_server import INT_CONFIG, RunningServer, write_model

TELL = """
import sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        print("prefix", sys.prefix)

    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
OUTSIDE = "must stay within the model's folder; with --trusted-model-path="


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment outside of every model."""
    folder = tmp_path / "environments" / "own"
    venv.create(folder, system_site_packages=True, symlinks=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return folder


def parameter(environment: object) -> str:
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'


def load(server: RunningServer, name: str, **parameters: Any) -> tuple[int, str]:
    status, _, body = server.ask("POST", f"/v2/repository/models/{name}/load", {"parameters": parameters})
    return status, body.decode()


def reason(server: RunningServer, name: str) -> str:
    return server.index()[name]["reason"]


def test_an_environment_outside_needs_a_flag(tmp_path: Path, environment: Path) -> None:
    write_model(tmp_path, "far", TELL, INT_CONFIG + parameter(environment))
    write_model(tmp_path, "up", TELL, INT_CONFIG + parameter("$$TRITON_MODEL_DIRECTORY/../../environments/own"))
    flags = ("--model-control-mode=explicit",)
    with RunningServer(tmp_path, *flags) as server:
        server.wait_until_listening()
        for name in ("far", "up"):
            status, text = load(server, name)
            assert status == 400
            assert f"EXECUTION_ENV_PATH '{environment}' {OUTSIDE}{environment.parent} " in text
    with RunningServer(tmp_path, *flags, f"--trusted-model-path={environment.parent}") as server:
        server.wait_until_listening()
        for name in ("far", "up"):
            assert load(server, name)[0] == 200
            assert server.infer(name, 1)[0] == 200
        assert f"prefix {environment}" in server.log


def test_a_client_cannot_name_one_either(tmp_path: Path, environment: Path) -> None:
    write_model(tmp_path, "model", TELL)
    tensors = {"data_type": "TYPE_INT32", "dims": [-1]}
    config = {
        "backend": "python",
        "max_batch_size": 8,
        "input": [{"name": "IN", **tensors}],
        "output": [{"name": "OUT", **tensors}],
        "parameters": {"EXECUTION_ENV_PATH": {"string_value": str(environment)}},
    }
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=model") as server:
        server.wait_until_listening()
        status, text = load(server, "model", config=json.dumps(config))
        assert (status, OUTSIDE in text) == (400, True)
        assert server.infer("model", 1)[0] == 200  # the old copy serves


@pytest.mark.parametrize("backend", ["onnxruntime", "pytorch", "python"])
def test_a_model_file_outside_is_refused(tmp_path: Path, backend: str) -> None:
    (tmp_path / "secret.py").write_text("raise RuntimeError('it was read')")
    for number, name in enumerate(("../../../secret.py", str(tmp_path / "secret.py"))):
        config = INT_CONFIG.replace('"python"', f'"{backend}"') + f'default_model_filename: "{name}"\n'
        write_model(tmp_path, f"model{number}", TELL, config)
    with RunningServer(tmp_path, "--exit-on-error=false") as server:
        server.wait_until_listening()
        for number in range(2):
            expected = f"default_model_filename '{tmp_path}/secret.py' {OUTSIDE}{tmp_path} "
            assert expected in reason(server, f"model{number}")
        assert "it was read" not in server.log


def test_the_files_of_a_load_that_failed_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "idle", TELL)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    config = json.dumps({"backend": "python"})
    good, bad = base64.b64encode(TELL.encode()).decode(), base64.b64encode(b"raise ValueError('no')").decode()

    def folders() -> list[str]:
        return [name for name in os.listdir(tmp_path / "temporary") if name.startswith("trireme-model-")]

    with RunningServer(tmp_path, "--model-control-mode=explicit") as server:
        server.wait_until_listening()
        for _ in range(3):
            assert load(server, "sent", config=config, **{"file:1/model.py": bad})[0] == 400
            assert not folders()
        assert load(server, "sent", config=config, **{"file:1/model.py": good})[0] == 200
        assert len(folders()) == 1
        assert load(server, "sent", config=config, **{"file:1/model.py": bad})[0] == 400
        assert len(folders()) == 1  # that of the copy that serves
        assert server.ask("POST", "/v2/repository/models/sent/unload")[0] == 200
        deadline = time.monotonic() + 10
        while folders():
            assert time.monotonic() < deadline
            time.sleep(0.02)
