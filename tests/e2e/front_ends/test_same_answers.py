"""The same questions, byte for byte, to a server with one process and to one with two front-end processes."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from process_server import ProcessServer, write_models

ECHO = "/v2/models/echo"
INT = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def infer(model: str = "echo", *headers: str, **fields: object) -> bytes:
    return post(f"/v2/models/{model}/infer", json.dumps({"inputs": [INT], **fields}).encode(), *headers)


def binary() -> bytes:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    body = head + np.array([3, 4], np.int32).tobytes()
    return post(f"{ECHO}/infer", body, f"Inference-Header-Content-Length: {len(head)}")


QUESTIONS = {
    "live": get("/v2/health/live"),
    "ready": get("/v2/health/ready"),
    "model ready": get(f"{ECHO}/ready"),
    "model not ready": get("/v2/models/nobody/ready"),
    "server metadata": get("/v2"),
    "model metadata": get(ECHO),
    "config": get(f"{ECHO}/config"),
    "index": post("/v2/repository/index", b""),
    "log settings": get("/v2/logging"),
    "trace settings": get("/v2/trace/setting"),
    "shared memory": get("/v2/systemsharedmemory/status"),
    "unknown path": get("/v2/somewhere"),
    "wrong method": get(f"{ECHO}/infer"),
    "malformed head": b"GET\r\n\r\n",
    "inference": infer(),
    "inference of a version": post(f"{ECHO}/versions/1/infer", json.dumps({"inputs": [INT]}).encode()),
    "inference with an id": infer(id="me"),
    "inference with parameters": infer(parameters={"priority": 1, "timeout": 100000, "mine": "x"}),
    "inference with an output": infer(outputs=[{"name": "OUT", "parameters": {"binary_data": True}}]),
    "inference with binary data": binary(),
    "inference with classes": infer(outputs=[{"name": "OUT", "parameters": {"classification": 2}}]),
    "inference in pieces": infer("echo", "Expect: 100-continue"),
    "inference that wants gzip": infer("echo", "Accept-Encoding: gzip"),
    "inference that ends": infer("echo", "Connection: close"),
    "unknown model": infer("nobody"),
    "unknown version": post(f"{ECHO}/versions/7/infer", json.dumps({"inputs": [INT]}).encode()),
    "decoupled model": infer("stream"),
    "events": infer("stream", "Accept: text/event-stream"),
    "failing model": infer("failing"),
    "no inputs": post(f"{ECHO}/infer", b"{}"),
    "no JSON": post(f"{ECHO}/infer", b"nothing"),
    "empty": post(f"{ECHO}/infer", b""),
    "wrong input": post(f"{ECHO}/infer", json.dumps({"inputs": [{**INT, "name": "INN"}]}).encode()),
    "wrong datatype": post(f"{ECHO}/infer", json.dumps({"inputs": [{**INT, "datatype": "INT64"}]}).encode()),
    "wrong shape": post(f"{ECHO}/infer", json.dumps({"inputs": [{**INT, "shape": [3, 2]}]}).encode()),
    "unknown output": infer(outputs=[{"name": "OUTT"}]),
    "unknown region": infer(outputs=[{"name": "OUT", "parameters": {"shared_memory_region": "r"}}]),
    "generate": post(f"{ECHO}/generate", json.dumps({"IN": [1, 2]}).encode()),
    "load of nobody": post("/v2/repository/models/nobody/load", b""),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProcessServer, ProcessServer]]:
    """A server with one process and one with two front ends, which serve the same models."""
    folders = [tmp_path_factory.mktemp("same") for _ in range(2)]
    for folder in folders:
        write_models(folder)
    flags = [f"--load-model={name}" for name in ("echo", "failing", "stream")]
    with ProcessServer(folders[0], 1, *flags) as one, ProcessServer(folders[1], 2, *flags) as two:
        one.wait_until_ready()
        two.wait_until_ready()
        yield one, two


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda name: name.replace(" ", "-"))
def test_answers_are_the_same_bytes(pair: tuple[ProcessServer, ProcessServer], question: str) -> None:
    one, two = (all_bytes(server, QUESTIONS[question]) for server in pair)
    assert one
    assert two == one


def test_answers_are_the_same_on_one_connection(pair: tuple[ProcessServer, ProcessServer]) -> None:
    """Requests that front ends read, and others, by turns and all at once."""
    names = ("inference", "index", "inference", "unknown model", "inference with binary data", "live", "inference")
    together = b"".join(QUESTIONS[name] for name in names)
    one, two = (all_bytes(server, together) for server in pair)
    assert one.count(b"HTTP/1.1 ") == len(names)
    assert two == one


def test_grpc_errors_are_the_same(pair: tuple[ProcessServer, ProcessServer]) -> None:
    one, two = (grpc_errors(server) for server in pair)
    assert len(one) == 5
    assert two == one


def grpc_errors(server: ProcessServer) -> list[str]:
    told = []
    with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        for model, name, version in (
            ("nobody", "IN", ""),
            ("echo", "INN", ""),
            ("echo", "IN", "7"),
            ("stream", "IN", ""),
            ("failing", "IN", ""),
        ):
            tensor = triton.InferInput(name, [1, 2], "INT32")
            tensor.set_data_from_numpy(np.array([[1, 2]], np.int32))
            with pytest.raises(triton.InferenceServerException) as caught:
                client.infer(model, [tensor], version)
            told.append(str(caught.value))
    return told


def all_bytes(server: ProcessServer, question: bytes) -> bytes:
    """All that comes until the server is silent or closes; the log's path is the folder's own."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.ports["http"])) as client:
        client.sendall(question)
        client.settimeout(10)
        while True:
            try:
                data = client.recv(1 << 16)
            except TimeoutError:
                break
            received += data
            if not data:
                break
            client.settimeout(1)
    return re.sub(re.escape(str(Path(server.log_path).parent)).encode(), b"FOLDER", received)
