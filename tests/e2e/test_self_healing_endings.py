"""Clients that leave and servers that are told to: who is told, what is finished, and that nothing stays behind."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running_server import RunningServer, exchange, int_request, write_model

PATIENT = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

DIARY = os.path.join(os.path.dirname(__file__), "diary")


def note(text):
    with open(DIARY, "a") as diary:
        diary.write(text + "\\n")


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            name = request.request_id()
            note(f"begin {name}")
            end = time.monotonic() + pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0, 0] / 1000
            while time.monotonic() < end and not request.is_cancelled():
                time.sleep(0.005)
            note(f"cancelled {name}" if request.is_cancelled() else f"end {name}")
            out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
            responses.append(pb_utils.InferenceResponse([out]))
        return responses

    def finalize(self):
        note("finalized")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path, "patient", PATIENT)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder) as server:
        server.wait_until_listening()
        yield server


def diary(server: RunningServer) -> list[str]:
    path = server.log_path.parent / "model_repository" / "patient" / "1" / "diary"
    return path.read_text().splitlines() if path.exists() else []


class HttpCall:
    """A request over a connection that the client can drop."""

    def __init__(self, server: RunningServer, name: str, duration_ms: int) -> None:
        self._connection = server.connect()
        body = json.dumps(int_request(duration_ms, request_id=name)).encode()
        self._connection.request("POST", "/v2/models/patient/infer", body)

    def leave(self) -> None:
        self._connection.close()

    def finish(self) -> int:
        response = self._connection.getresponse()
        response.read()
        self._connection.close()
        return response.status


class GrpcCall:
    """The same over gRPC, cancelled by the client or by its deadline."""

    def __init__(self, server: RunningServer, name: str, duration_ms: int, timeout_s: float | None = None) -> None:
        import tritonclient.grpc as grpcclient

        self._client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
        tensor = grpcclient.InferInput("IN", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.array([[duration_ms]], np.int32))
        self._is_done = threading.Event()
        self.error: Any = None
        self._call = self._client.async_infer(
            "patient", [tensor], self._on_answer, request_id=name, client_timeout=timeout_s
        )

    def _on_answer(self, result: Any, error: Any) -> None:
        self.error = error
        self._is_done.set()

    def leave(self) -> None:
        self._call.cancel()
        self.wait()

    def wait(self) -> None:
        assert self._is_done.wait(20)
        self._client.close()


def test_a_client_that_leaves_is_noticed_by_the_model_and_its_queued_requests_never_run(server: RunningServer) -> None:
    for kind in (HttpCall, GrpcCall):
        first, second, third = (f"{kind.__name__} {number}" for number in (1, 2, 3))
        running = kind(server, first, 10_000)
        server.until(lambda name=first: f"begin {name}" in diary(server))
        queued = kind(server, second, 10_000)
        server.until(lambda: server.value("nv_inference_pending_request_count", model="patient", version="1") == 1)
        queued.leave()
        server.until(lambda: server.value("nv_inference_pending_request_count", model="patient", version="1") == 0)
        running.leave()
        server.until(lambda name=first: f"cancelled {name}" in diary(server))
        assert server.infer("patient", 1, request_id=third)[0] == 200
        assert not [line for line in diary(server) if line.endswith(second)]
    assert server.value("nv_inference_request_failure", model="patient", version="1", reason="CANCELED") == 2


def test_a_deadline_of_a_grpc_client_ends_its_request(server: RunningServer) -> None:
    running = GrpcCall(server, "running", 10_000, timeout_s=1.0)
    server.until(lambda: "begin running" in diary(server))
    queued = GrpcCall(server, "queued", 10_000, timeout_s=0.4)
    began = time.monotonic()
    for call in (queued, running):
        call.wait()
        assert "Deadline Exceeded" in str(call.error)
    server.until(lambda: "cancelled running" in diary(server))
    assert time.monotonic() - began < 5
    assert server.infer("patient", 1, request_id="next")[0] == 200
    assert diary(server) == ["begin running", "cancelled running", "begin next", "end next"]


def test_sigterm_finishes_what_was_begun_and_leaves_nothing_behind(server: RunningServer) -> None:
    workers = server.children()
    assert len(workers) == 1
    waiting = server.connect()
    assert exchange(waiting, "GET", "/v2/health/ready")[0] == 200
    running = HttpCall(server, "running", 2000)
    server.until(lambda: "begin running" in diary(server))  # requests of two connections have no order of their own
    calls = [running, HttpCall(server, "queued", 100)]
    server.until(lambda: server.value("nv_inference_pending_request_count", model="patient", version="1") == 1)
    server.process.send_signal(signal.SIGTERM)
    server.until(lambda: is_refused(server))
    assert "end running" not in diary(server), "readiness turns false before the last request is finished"
    try:
        assert exchange(waiting, "GET", "/v2/health/ready")[0] == 503
    except (ConnectionError, http.client.RemoteDisconnected):
        pass
    assert [call.finish() for call in calls] == [200, 200]
    assert server.process.wait(20) == 0
    assert diary(server) == ["begin running", "end running", "begin queued", "end queued", "finalized"]
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def is_refused(server: RunningServer) -> bool:
    """Whether a new client learns that it should go elsewhere."""
    try:
        return server.status("/v2/health/ready") == 503
    except ConnectionError:
        return True


def test_a_server_that_is_killed_takes_its_workers_along(server: RunningServer) -> None:
    workers = server.children()
    call = HttpCall(server, "running", 30_000)
    server.until(lambda: "begin running" in diary(server))
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 5
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker lives on"
        time.sleep(0.01)
    call.leave()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
