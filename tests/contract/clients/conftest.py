"""One real server with real model processes for all tests of this folder, and the official clients connected to it."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from running_server import RunningServer

HERE = Path(__file__).parent
NOT_LOADED = "spare"


class Server(RunningServer):
    """A server of the repository beside this file, all of it loaded but one model."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "model_repository"
        _write_repository(self.repository)
        models = sorted(path.name for path in self.repository.iterdir() if path.name != NOT_LOADED)
        flags = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in models)]
        flags += ["--http-header-forward-pattern=^x-", "--grpc-header-forward-pattern=^x-"]
        super().__init__(folder, *flags, "--grpc-infer-response-compression-level=low")
        self.http = f"127.0.0.1:{self.ports['http']}"
        self.grpc = f"127.0.0.1:{self.ports['grpc']}"

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one plain HTTP request; objects are sent as JSON."""
        connection = http.client.HTTPConnection(self.http, timeout=20)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
        finally:
            connection.close()


def _write_repository(target: Path) -> None:
    shutil.copytree(HERE / "repository", target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "pipeline" / "1").mkdir()
    shutil.copytree(target / "queued" / "1", target / "ordered" / "1")
    shutil.copytree(target / "caller", target / "caller_two")


class Door:
    """One protocol: the client's module, a client, and short ways to build what both modules build alike."""

    def __init__(self, name: str, module: ModuleType, client: Any) -> None:
        self.name = name
        self.module = module
        self.client = client

    def tensor(self, name: str, array: np.ndarray, datatype: str | None = None, **options: Any) -> Any:
        entry = self.module.InferInput(name, list(array.shape), datatype or _wire_name(array))
        entry.set_data_from_numpy(array, **options)
        return entry

    def output(self, name: str, **options: Any) -> Any:
        return self.module.InferRequestedOutput(name, **options)

    def infer(self, model: str, inputs: dict[str, np.ndarray], outputs: list[Any] | None = None, **options: Any) -> Any:
        tensors = [self.tensor(name, array) for name, array in inputs.items()]
        return self.client.infer(model, tensors, outputs=outputs, **options)

    def text(self, model: str, inputs: dict[str, np.ndarray], **options: Any) -> Any:
        """What a model that answers with JSON in TEXT says."""
        return json.loads(self.infer(model, inputs, **options).as_numpy("TEXT").reshape(-1)[0])

    def way(self, model: str, name: str, **options: Any) -> Any:
        """The answer of a model that has one behaviour per name."""
        return self.text(model, {"WAY": np.array([name], dtype=object)}, **options)

    def plain(self, response: Any) -> Any:
        """An answer of the client that is a message for gRPC and a dictionary for HTTP, as a dictionary."""
        if self.name == "http":
            return response
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(response, preserving_proto_field_name=True)


def _wire_name(array: np.ndarray) -> str:
    from tritonclient.utils import np_to_triton_dtype

    return str(np_to_triton_dtype(array.dtype))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("clients")) as server:
        server.wait_until_ready()
        yield server
        server.interrupt(signal.SIGTERM)


@pytest.fixture(scope="session")
def http_door(server: Server) -> Iterator[Door]:
    client = tritonclient.http.InferenceServerClient(server.http, concurrency=16, network_timeout=30)
    yield Door("http", tritonclient.http, client)
    client.close()


@pytest.fixture(scope="session")
def grpc_door(server: Server) -> Iterator[Door]:
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        yield Door("grpc", tritonclient.grpc, client)


@pytest.fixture(params=["http", "grpc"])
def door(request: pytest.FixtureRequest) -> Door:
    found: Door = request.getfixturevalue(f"{request.param}_door")
    return found


@pytest.fixture(autouse=True)
def _ready(server: Server) -> None:
    """A model that the test before is still unloading makes the server unready for a moment."""
    server.wait_until_ready()
