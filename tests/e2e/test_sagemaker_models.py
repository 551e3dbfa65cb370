"""SageMaker with several models: the platform unpacks archives, and has them loaded, invoked and unloaded."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_ports
from running_server import (
    INT_CONFIG,
    START_S,
    RunningServer,
    int_request,
    port_flags,
    three_ports,
    write_ensemble,
    write_model,
)

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        pb_utils.Logger.log_verbose("the model was asked")
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        if any((array == 99).any() for array in given):
            raise MemoryError("CUDA out of memory")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + ADDED)]) for array in given]
"""
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise MemoryError("out of memory on purpose")
"""
TRITONSERVER = str(Path(sys.executable).with_name("tritonserver"))
SERVE = Path(__file__).parents[2] / "examples" / "serve"
TARGET = "X-Amzn-SageMaker-Target-Model"


class SagemakerServer(RunningServer):
    def __init__(self, folder: Path, mode: str = "explicit") -> None:
        self.ports = three_ports()
        (self.port,) = free_ports(1)
        self.models = folder / "models"
        self.models.mkdir()
        words = [f"--model-repository={self.models}", f"--model-control-mode={mode}", "--allow-sagemaker=true"]
        self._start(folder, [TRITONSERVER, *words, f"--sagemaker-port={self.port}", *port_flags(self.ports)])

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, json.dumps(body) if body is not None else None, given)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else None

    def unpack(self, name: str, archive: Path) -> str:
        """What the platform does before it asks for a load: `/opt/ml/models/<hash>/model`."""
        shutil.copytree(archive, self.models / name / "model")
        return str(self.models / name / "model")

    def load(self, name: str, archive: Path, **headers: str) -> tuple[int, Any]:
        return self.send("POST", "/models", {"model_name": name, "url": self.unpack(name, archive)}, **headers)


class ContainerServer(SagemakerServer):
    """Started by the command that the platform calls in the image."""

    def __init__(self, folder: Path, **variables: str) -> None:
        (self.port,) = free_ports(1)
        self.models = folder / "models"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        (other,) = free_ports(1)  # the platform's own port is none of those that it leaves to the container
        bound = {"SAGEMAKER_BIND_TO_PORT": str(self.port), "SAGEMAKER_SAFE_PORT_RANGE": f"{other}-{other}"}
        self._start(folder, [str(SERVE), str(folder)], PATH=path, TMPDIR=str(folder), **{**bound, **variables})

    def is_up(self) -> bool:
        try:
            return self.send("GET", "/ping")[0] == 200
        except OSError:
            return False


class ForkedContainer(ContainerServer):
    """The same, but for the last line of the command: the server that it asks for does not start from scratch."""

    def _start(self, folder: Path, command: Sequence[str] | str, **variables: str) -> None:
        asked, stand_in = folder / "asked", folder / "bin" / "tritonserver"
        stand_in.parent.mkdir()
        stand_in.write_text(f'#!/bin/sh\nprintf "%s\\0" "$SAGEMAKER_TRITON_PING_MODE" "$@" > {asked}\n')
        stand_in.chmod(0o755)
        path = f"{stand_in.parent}:{variables['PATH']}"
        subprocess.run(command, cwd=folder, env={**os.environ, **variables, "PATH": path}, check=True)
        mode, *words = asked.read_text().split("\0")[:-1]
        super()._start(folder, [TRITONSERVER, *words], **{**variables, "SAGEMAKER_TRITON_PING_MODE": mode})


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a repository, a model by itself, an ensemble with its step, and one that has no room."""
    root = tmp_path_factory.mktemp("archives")
    for folder, model, code in (
        ("one", "plus", ECHO.replace("ADDED", "10")),
        ("full", "full", BROKEN),
        ("two", "plus", ECHO.replace("ADDED", "20")),
        ("two", "other", ECHO.replace("ADDED", "30")),
        ("ensemble", "step", ECHO.replace("ADDED", "1")),
    ):
        write_model(root / folder, model, code, f'name: "{model}"\n{INT_CONFIG}')
    write_ensemble(root / "ensemble", "whole", [("step", "IN", "middle"), ("step", "middle", "OUT")])
    shutil.copytree(root / "one" / "model_repository" / "plus", root / "bare")
    return root


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SagemakerServer]:
    with SagemakerServer(tmp_path) as server:
        server.wait_until_listening()
        yield server


def invoked(server: SagemakerServer, name: str, *values: int, **headers: str) -> list[int]:
    status, answer = server.send("POST", f"/models/{name}/invoke", int_request(*values), **headers)
    assert status == 200, answer
    found: list[int] = answer["outputs"][0]["data"]
    return found


def invoke_default(server: SagemakerServer, *values: int) -> list[int]:
    status, answer = server.send("POST", "/invocations", int_request(*values))
    assert status == 200, answer
    found: list[int] = answer["outputs"][0]["data"]
    return found


def test_models_are_loaded_listed_invoked_and_unloaded(server: SagemakerServer, archives: Path) -> None:
    assert server.send("GET", "/ping")[0] == 200
    assert server.send("GET", "/models") == (200, {"models": []})
    assert server.load("hash1", archives / "one" / "model_repository") == (200, None)
    assert server.load("hash2", archives / "bare") == (200, None)
    assert invoked(server, "hash1", 1, 2) == [11, 12]
    assert invoked(server, "hash2", 5) == [15]
    urls = {"hash1": str(server.models / "hash1" / "model"), "hash2": str(server.models / "hash2")}
    entries = {entry["modelName"]: entry["modelUrl"] for entry in server.send("GET", "/models")[1]["models"]}
    assert entries == urls
    assert server.send("GET", "/models/hash2") == (200, {"modelName": "hash2", "modelUrl": urls["hash2"]})
    assert server.send("DELETE", "/models/hash1") == (200, None)
    assert server.send("GET", "/models/hash1")[0] == 404
    assert server.send("POST", "/models/hash1/invoke", int_request(1))[0] == 404
    assert [entry["modelName"] for entry in server.send("GET", "/models")[1]["models"]] == ["hash2"]
    assert invoked(server, "hash2", 6) == [16]
    status, _ = server.send("POST", "/models", {"model_name": "hash1", "url": urls["hash1"]})
    assert status == 200
    assert invoked(server, "hash1", 1) == [11]


def test_a_model_is_called_as_its_archive(server: SagemakerServer, archives: Path) -> None:
    headers = {TARGET.replace("-", "_"): "plus.tar.gz"}
    assert server.load("hash", archives / "one" / "model_repository", **headers)[0] == 200
    assert invoked(server, "hash", 3, **headers) == [13]
    assert server.index()["plus.tar.gz"]["state"] == "READY"
    assert server.send("DELETE", "/models/hash")[0] == 200
    nested = {TARGET.replace("-", "_"): "folder/plus.tar.gz"}
    assert server.load("nested", archives / "one" / "model_repository", **nested)[0] == 200
    assert invoked(server, "nested", 3, **nested) == [13]


def test_an_ensemble_comes_with_its_steps(server: SagemakerServer, archives: Path) -> None:
    assert server.load("hash", archives / "ensemble" / "model_repository") == (200, None)
    assert invoked(server, "hash", 3) == [5]
    status, answer = server.load("same", archives / "ensemble" / "model_repository")
    assert (status, "model 'step' of" in answer["error"]) == (409, True)
    assert invoked(server, "hash", 3) == [5]
    assert server.send("DELETE", "/models/hash") == (200, None)
    assert server.index()["hash"].get("state", "UNAVAILABLE") == "UNAVAILABLE"
    server.until(lambda: "step" not in server.index())


def test_what_goes_wrong_has_the_status_that_the_platform_acts_on(server: SagemakerServer, archives: Path) -> None:
    assert server.load("hash", archives / "one" / "model_repository")[0] == 200
    url = str(server.models / "hash" / "model")
    assert server.send("POST", "/models", {"model_name": "hash", "url": url})[0] == 409
    assert server.send("POST", "/models", {"model_name": "again", "url": url})[0] == 409
    status, answer = server.load("full", archives / "full" / "model_repository")
    assert (status, "out of memory" in answer["error"]) == (507, True)
    assert server.send("POST", "/models/hash/invoke", int_request(99))[0] == 507
    status, answer = server.load("two", archives / "two" / "model_repository")
    assert (status, "found: other, plus" in answer["error"]) == (400, True)
    for body in ({"model_name": "x", "url": "/proc/self"}, {"model_name": "x", "url": "/nowhere"}, {"url": url}, []):
        assert server.send("POST", "/models", body)[0] == 400
    assert server.send("POST", "/models/hash/invoke", {"inputs": []})[0] == 400
    assert server.send("DELETE", "/models/unknown")[0] == 404
    assert server.send("PUT", "/models/hash")[0] == 405
    assert server.send("GET", "/models/hash/config")[0] == 400
    assert server.status("/models") == 404
    assert invoked(server, "hash", 1) == [11]
    # what did not load has left nothing behind
    shutil.rmtree(server.models / "full")
    assert server.load("full", archives / "one" / "model_repository")[0] == 200


def test_binary_tensors_reach_one_of_several_models(server: SagemakerServer, archives: Path) -> None:
    assert server.load("hash", archives / "one" / "model_repository")[0] == 200
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    text = json.dumps({"inputs": [tensor]}).encode()
    media_type = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(text)}"
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        body = text + np.array([4, 5], np.int32).tobytes()
        connection.request("POST", "/models/hash/invoke", body, {"Content-Type": media_type})
        answer = json.loads(connection.getresponse().read())
    assert answer["outputs"][0]["data"] == [14, 15]


def test_without_model_control_nothing_is_loaded(tmp_path: Path, archives: Path) -> None:
    with SagemakerServer(tmp_path, "none") as server:
        server.wait_until_listening()
        url = str(archives / "one" / "model_repository")
        status, answer = server.send("POST", "/models", {"model_name": "hash", "url": url})
        assert (status, "not allowed" in answer["error"]) == (400, True)
        assert server.send("GET", "/models") == (200, {"models": []})


def test_the_command_of_the_image_serves_one_model(tmp_path: Path, archives: Path) -> None:
    shutil.copytree(archives / "one" / "model_repository", tmp_path / "model")
    with ContainerServer(tmp_path) as server:
        server.until(server.is_up, START_S)
        status, answer = server.send("POST", "/invocations", int_request(1, 2))
        assert (status, answer["outputs"][0]["data"]) == (200, [11, 12])
        assert "Started HTTPService" not in server.log
        assert "Started Sagemaker HTTPService" in server.log
        assert "the model was asked" not in server.log


def test_the_command_of_the_image_serves_the_model_that_is_named(tmp_path: Path, archives: Path) -> None:
    """An ensemble with its steps, and no model beside them; the log says as much as is wished."""
    shutil.copytree(archives / "ensemble" / "model_repository", tmp_path / "model")
    shutil.copytree(archives / "full" / "model_repository" / "full", tmp_path / "model" / "full")
    wishes = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "whole", "SAGEMAKER_TRITON_LOG_INFO": "false"}
    with ForkedContainer(tmp_path, **wishes, SAGEMAKER_TRITON_LOG_VERBOSE="true") as server:
        server.until(server.is_up, START_S)
        status, answer = server.send("POST", "/invocations", int_request(1, 2))
        assert (status, answer["outputs"][0]["data"]) == (200, [3, 4])
        assert "out of memory on purpose" not in server.log
        assert "Started Sagemaker HTTPService" not in server.log
        server.until(lambda: "the model was asked" in server.log)


@pytest.mark.parametrize("is_told", [True, False])
def test_the_command_of_the_image_ends_without_the_model_that_is_named(
    is_told: bool, tmp_path: Path, archives: Path
) -> None:
    shutil.copytree(archives / "one" / "model_repository", tmp_path / "model")
    wishes = {} if is_told else {"SAGEMAKER_TRITON_LOG_ERROR": "false"}
    with ForkedContainer(tmp_path, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="other", **wishes) as server:
        assert server.process.wait(START_S) == 1
        assert ("failed to load 'other': there is no folder of this name" in server.log) == is_told


def test_the_command_of_the_image_opens_what_it_is_told_to(tmp_path: Path, archives: Path) -> None:
    """Metrics on a port that the platform leaves to the container, and flags beside."""
    shutil.copytree(archives / "one" / "model_repository", tmp_path / "model")
    (metrics,) = free_ports(1)
    wishes = {
        "SAGEMAKER_SAFE_PORT_RANGE": f"{metrics}-{metrics}",
        "SAGEMAKER_TRITON_ALLOW_METRICS": "true",
        "SAGEMAKER_TRITON_METRICS_PORT": str(metrics),
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--log-verbose=1 --exit-timeout-secs=7",
    }
    with ForkedContainer(tmp_path, **wishes) as server:
        server.until(server.is_up, START_S)
        with closing(http.client.HTTPConnection("127.0.0.1", metrics, timeout=30)) as connection:
            connection.request("GET", "/metrics")
            assert b"nv_inference_count" in connection.getresponse().read()
        assert invoke_default(server, 1) == [11]
        assert "the model was asked" in server.log
        assert "GRPCInferenceService" not in server.log


def test_the_command_of_the_image_keeps_other_ports_from_where_the_platform_forbids_them(
    tmp_path: Path, archives: Path
) -> None:
    shutil.copytree(archives / "one" / "model_repository", tmp_path / "model")
    with ForkedContainer(tmp_path, SAGEMAKER_TRITON_ALLOW_METRICS="true") as server:
        assert server.process.wait(START_S) == 1
        assert "cannot listen to metrics requests at port 8002, allowed port range is" in server.log


def test_the_command_of_the_image_says_where_the_models_belong(tmp_path: Path, archives: Path) -> None:
    shutil.copytree(archives / "one" / "model_repository" / "plus", tmp_path / "model")
    with ContainerServer(tmp_path) as server:
        assert server.process.wait(START_S) == 1
        assert "model is a model: pack the folder that holds the models' folders" in server.log


@pytest.mark.parametrize(("wish", "is_ready"), [({}, True), ({"SAGEMAKER_TRITON_OVERRIDE_PING_MODE": "ready"}, False)])
def test_a_model_of_several_that_fails_does_not_end_the_container(
    wish: dict[str, str], is_ready: bool, tmp_path: Path, archives: Path
) -> None:
    with ForkedContainer(tmp_path, SAGEMAKER_MULTI_MODEL="true", **wish) as server:
        server.until(server.is_up, START_S)
        assert server.load("full", archives / "full" / "model_repository")[0] == 507
        assert server.is_up() == is_ready


def test_the_command_of_the_image_serves_several_models(tmp_path: Path, archives: Path) -> None:
    """None is there at first, not even their folder."""
    with ForkedContainer(tmp_path, SAGEMAKER_MULTI_MODEL="true") as server:
        server.until(server.is_up, START_S)
        assert server.load("abc", archives / "one" / "model_repository") == (200, None)
        assert invoked(server, "abc", 1, 2) == [11, 12]
