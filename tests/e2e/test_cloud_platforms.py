"""The paths of cloud platforms on a real server: Oracle Cloud's, SageMaker's and Vertex AI's."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from free_ports import free_ports
from running_server import RunningServer, int_request, port_flags, three_ports, write_model

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + ADDED)]) for array in given]
"""
ROUTES = {"AIP_PREDICT_ROUTE": "/v1/endpoints/7:predict", "AIP_HEALTH_ROUTE": "/v1/endpoints/7/health"}
TRITON = {"CONTAINER_TYPE": "TRITON"}


class CloudServer(RunningServer):
    def __init__(self, folder: Path, variables: dict[str, str], *flags: str) -> None:
        self.ports = three_ports()
        for name, added in (("echo", "0"), ("plus", "10")):
            write_model(folder, name, ECHO.replace("ADDED", added))
        command = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository", *flags]
        self._start(folder, [*command, *port_flags(self.ports)], **variables)

    def send(
        self, port: int, method: str, path: str, body: bytes | dict[str, object] = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        given = {name.replace("__", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, content, given)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


class RepositorylessServer(CloudServer):
    """Told of its models by the platform alone."""

    def __init__(self, folder: Path, command: list[str], ports: dict[str, int], variables: dict[str, str]) -> None:
        self.ports = ports
        self._start(folder, command, **variables)


def data(body: bytes) -> list[int]:
    return json.loads(body)["outputs"][0]["data"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CloudServer, int, int]]:
    sagemaker, vertex = free_ports(2)
    flags = ("--allow-sagemaker=true", f"--sagemaker-port={sagemaker}", "--allow-vertex-ai=true")
    more = (f"--vertex-ai-port={vertex}", "--vertex-ai-default-model=plus")
    variables = {**TRITON, **ROUTES, "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "echo"}
    with CloudServer(tmp_path_factory.mktemp("cloud"), variables, *flags, *more) as server:
        server.wait_until_listening()
        yield server, sagemaker, vertex


def test_oracle_cloud_finds_the_model_by_headers(cloud: tuple[CloudServer, int, int]) -> None:
    server, port = cloud[0], cloud[0].ports["http"]
    assert server.send(port, "GET", "/health")[0] == 200
    for headers in ({"model_name": "plus"}, {"model_name": "plus", "model_version": "1"}):
        status, _, body = server.send(port, "POST", "/predict", int_request(1, 2), **headers)
        assert (status, data(body)) == (200, [11, 12])
    status, _, body = server.send(port, "POST", "/predict", int_request(1))
    assert status == 400
    assert "needs the header 'model_name'" in json.loads(body)["error"]
    status, _, body = server.send(port, "POST", "/predict", int_request(1), model_name="../echo")
    assert status == 404
    assert server.send(port, "POST", "/predict", int_request(1), model_name="plus", model_version="x")[0] == 400


@pytest.mark.parametrize("model_name", ["", "plus"])
def test_oracle_cloud_predicts_at_the_chosen_endpoint(tmp_path: Path, model_name: str) -> None:
    """Headers choose only where the deployment says that the container is Triton's."""
    variables = {
        "MODEL_DEPLOY_PREDICT_ENDPOINT": "/v2/models/echo/versions/1/infer",
        "MODEL_DEPLOY_HEALTH_ENDPOINT": "/v2/models/echo/ready",
        "STORAGE_SIZE_IN_GB": "500",
    }
    with CloudServer(tmp_path, variables) as server:
        server.wait_until_listening()
        port = server.ports["http"]
        assert server.send(port, "GET", "/health")[0] == 200
        status, _, body = server.send(port, "POST", "/predict", int_request(3), model_name=model_name)
        assert (status, data(body)) == (200, [3])
        assert server.send(port, "POST", "/v2/models/plus/infer", int_request(3))[0] == 200


@pytest.mark.parametrize("processes", [1, 2])
def test_a_wrong_endpoint_is_told(tmp_path: Path, processes: int) -> None:
    variables = {"MODEL_DEPLOY_PREDICT_ENDPOINT": "predict", "TRIREME_FRONTEND_PROCESSES": str(processes)}
    with CloudServer(tmp_path, variables) as server:
        assert server.process.wait(60) == 1
        assert "MODEL_DEPLOY_PREDICT_ENDPOINT is 'predict', which is not a path" in server.log
        assert "Traceback" not in server.log


def test_without_its_variables_there_are_no_such_paths(tmp_path: Path) -> None:
    with CloudServer(tmp_path, {}) as server:
        server.wait_until_listening()
        assert server.status("/health") == 404
        assert server.ask("POST", "/predict", int_request(1))[0] == 404


def binary_request() -> tuple[int, bytes]:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    text = json.dumps({"inputs": [tensor], "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}]}).encode()
    return len(text), text + np.array([4, 5], np.int32).tobytes()


def test_sagemaker_pings_and_invokes(cloud: tuple[CloudServer, int, int]) -> None:
    server, port, _ = cloud
    assert server.send(port, "GET", "/ping")[0] == 200
    status, _, body = server.send(port, "POST", "/invocations", int_request(7))
    assert (status, data(body)) == (200, [7])
    assert server.send(port, "GET", "/v2/health/ready")[0] == 400
    assert f"Started Sagemaker HTTPService at 127.0.0.1:{port}" in server.log


@pytest.mark.parametrize(
    ("platform", "path", "expected"),
    [("sagemaker", "/invocations", [4, 5]), ("vertex-ai", ROUTES["AIP_PREDICT_ROUTE"], [14, 15])],
)
def test_binary_tensors_say_the_size_of_the_json_in_the_content_type(
    cloud: tuple[CloudServer, int, int], platform: str, path: str, expected: list[int]
) -> None:
    server, port = cloud[0], cloud[1 if platform == "sagemaker" else 2]
    length, body = binary_request()
    media_type = f"application/vnd.{platform}-triton.binary+json;json-header-size="
    status, headers, answer = server.send(port, "POST", path, body, Content__Type=f"{media_type}{length}")
    assert status == 200
    assert headers["content-type"].startswith(media_type)
    size = int(headers["content-type"].removeprefix(media_type))
    assert json.loads(answer[:size])["outputs"][0]["name"] == "OUT"
    assert np.frombuffer(answer[size:], np.int32).tolist() == expected
    wrong = server.send(port, "POST", path, body, Content__Type=f"text/plain, {media_type}{length}")
    assert wrong[0] == 400


def test_vertex_ai_predicts_and_redirects(cloud: tuple[CloudServer, int, int]) -> None:
    server, _, port = cloud
    assert server.send(port, "GET", ROUTES["AIP_HEALTH_ROUTE"])[0] == 200
    predict = ROUTES["AIP_PREDICT_ROUTE"]
    status, _, body = server.send(port, "POST", predict, int_request(1))
    assert (status, data(body)) == (200, [11])
    redirected = {"X__Vertex__Ai__Triton__Redirect": "v2/models/echo/infer"}
    status, _, body = server.send(port, "POST", predict, int_request(1), **redirected)
    assert (status, data(body)) == (200, [1])
    status, _, body = server.send(port, "POST", predict, X__Vertex__Ai__Triton__Redirect="v2/models/echo/config")
    assert (status, json.loads(body)["name"]) == (200, "echo")
    status, headers, body = server.send(port, "POST", predict, b"{}", X__Vertex__Ai__Triton__Redirect="metrics")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert b'nv_inference_request_success{model="echo",version="1"}' in body
    for path in ("/v2/health/ready", "/metrics"):
        assert server.send(port, "GET", path)[0] == 400
    status, _, body = server.send(port, "POST", predict, b'{"instances": [1]}')
    assert json.loads(body)["error"].endswith(
        "'instances' is there instead, as Vertex AI's predict sends it: rawPredict sends a body as it is"
    )


def test_vertex_ai_names_the_repository_and_the_port(tmp_path: Path) -> None:
    """Where a flag opens its port as where AIP_MODE does."""
    write_model(tmp_path, "echo", ECHO.replace("ADDED", "0"))
    port, ports = free_ports(1)[0], three_ports()
    variables = {**ROUTES, "AIP_STORAGE_URI": "model_repository", "AIP_HTTP_PORT": str(port)}
    command = [str(Path(sys.executable).with_name("tritonserver")), "--allow-vertex-ai=true", *port_flags(ports)]
    with RepositorylessServer(tmp_path, command, ports, variables) as server:
        server.wait_until_listening()
        status, _, body = server.send(port, "POST", ROUTES["AIP_PREDICT_ROUTE"], int_request(1))
        assert (status, data(body)) == (200, [1])


def failing_start(folder: Path, variables: dict[str, str], *flags: str) -> str:
    for name in ("echo", "plus"):
        write_model(folder, name, ECHO.replace("ADDED", "0"))
    command = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository", *flags]
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    return ended.stderr


def test_what_cannot_be_deployed_so_is_told_at_start(tmp_path: Path) -> None:
    flags = ("--allow-metrics=false",)
    prediction = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": str(free_ports(1)[0])}
    told = failing_start(tmp_path, prediction, *flags)
    assert "AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE are not defined for Vertex AI endpoint" in told
    assert "loading" not in told
    assert "only a single model" in failing_start(tmp_path, {**prediction, **ROUTES}, *flags)
    missing = {**prediction, **ROUTES, "AIP_HEALTH_ROUTE": ""}
    assert "AIP_HEALTH_ROUTE is not defined" in failing_start(tmp_path, missing, *flags)
    unknown = (*flags, "--vertex-ai-default-model=other")
    assert "the default model 'other' is loaded" in failing_start(tmp_path, {**prediction, **ROUTES}, *unknown)
    chosen = {"SAGEMAKER_TRITON_INFERENCE_TYPE": "guess"}
    flags = (*flags, "--allow-http=false", "--allow-grpc=false", "--allow-sagemaker=true")
    assert "known are infer, generate, generate_stream" in failing_start(tmp_path, chosen, *flags)
