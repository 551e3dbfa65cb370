"""The access log and audit lines of a real server: who asked for what, and what came of it."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from running_server import RunningServer, int_request, write_model

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in given]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("logged")
    write_model(folder, "echo", ECHO)
    flags = ("--access-log=access.log", "--model-control-mode=explicit", "--load-model=echo")
    with RunningServer(folder, *flags) as server:
        server.wait_until_listening()
        yield server


def entries(server: RunningServer, **wanted: object) -> list[dict[str, Any]]:
    text = (server.log_path.parent / "access.log").read_text()
    found = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [entry for entry in found if wanted.items() <= entry.items()]


def test_requests_of_every_port_are_in_the_log(server: RunningServer) -> None:
    status, _, body = server.ask("POST", "/v2/models/echo/infer", int_request(1, 2))
    assert status == 200
    server.ask("GET", "/nothing")
    server.ask("POST", "/v1/chat/completions", {"model": "nobody", "messages": []})
    server.metrics_page()
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    tensor = grpcclient.InferInput("IN", [1, 2], "INT32")
    tensor.set_data_from_numpy(np.array([[1, 2]], np.int32))
    client.infer("echo", [tensor])
    client.close()
    server.until(lambda: entries(server, protocol="gRPC"))
    (infer,) = entries(server, path="/v2/models/echo/infer")
    assert (infer["status"], infer["model"], infer["key"], infer["peer"]) == (200, "echo", "anonymous", "127.0.0.1")
    assert infer["received_bytes"] == len(json.dumps(int_request(1, 2)))
    assert infer["sent_bytes"] > len(body)
    assert 0 < infer["duration_us"] < 10_000_000
    assert [entry["status"] for entry in entries(server, path="/nothing")] == [404]
    assert [entry["group"] for entry in entries(server, path="/metrics")] == ["metrics"]
    assert [entry["status"] for entry in entries(server, path="/v1/chat/completions")] == [400]
    (call,) = entries(server, protocol="gRPC")
    assert (call["path"], call["model"]) == ("/inference.GRPCInferenceService/ModelInfer", "echo")
    assert (call["status"], call["requests"], call["group"]) == (0, 1, "inference")
    assert server.value("trireme_access_log_lines_total") >= 4
    assert server.value("trireme_access_log_dropped_total") == 0


def test_the_log_goes_on_in_a_new_file_when_it_was_moved_away(server: RunningServer) -> None:
    path = server.log_path.parent / "access.log"
    path.rename(path.with_name("access.log.1"))

    def is_there() -> bool:
        server.status("/v2/health/live")
        return path.exists() and bool(entries(server, path="/v2/health/live"))

    server.until(is_there)


def test_a_log_that_cannot_be_written_does_not_stop_the_server(tmp_path: Path) -> None:
    write_model(tmp_path, "echo", ECHO)
    with RunningServer(tmp_path, "--access-log=/dev/full", "--access-log-format=common") as server:
        server.wait_until_listening()
        for number in range(50):
            assert server.infer("echo", number)[0] == 200
        server.until(lambda: "the access log '/dev/full' cannot be written: No space left on device" in server.log)
        server.until(lambda: server.value("trireme_access_log_dropped_total") >= 50)
        assert server.log.count("cannot be written") == 1
        assert server.interrupt() == 0


def test_a_log_that_nobody_reads_does_not_stop_the_server(tmp_path: Path) -> None:
    """A pipe whose reader sleeps, as a slow disk."""
    write_model(tmp_path, "echo", ECHO)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with RunningServer(tmp_path, "--access-log=pipe") as server:
            server.wait_until_listening()
            connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=10)
            for _ in range(1000):
                connection.request("GET", "/v2/health/live")
                assert connection.getresponse().read() == b""
            connection.close()
            assert server.interrupt() == 0
    finally:
        os.close(reader)


def test_standard_output_can_be_the_log(tmp_path: Path) -> None:
    write_model(tmp_path, "echo", ECHO)
    with RunningServer(tmp_path, "--access-log=-", "--access-log-format=common") as server:
        server.wait_until_listening()
        server.status("/v2/health/live")
        server.until(lambda: '"GET /v2/health/live HTTP/1.1" 200 ' in server.log)


def test_loads_unloads_and_settings_leave_audit_lines(server: RunningServer) -> None:
    assert server.ask("POST", "/v2/repository/models/echo/unload")[0] == 200
    assert server.ask("POST", "/v2/repository/models/nothing/load")[0] == 500
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    client.load_model("echo")
    client.update_log_settings({"log_verbose_level": 0})
    client.close()
    assert server.ask("POST", "/v2/trace/setting", {"trace_rate": "7\n; drop"})[0] == 400
    who = "audit: 'anonymous' at 127.0.0.1 over"
    lines = [line.partition("] ")[2] for line in server.log.splitlines() if "] audit: " in line]
    assert f"{who} HTTP: unload model 'echo': done" in lines
    assert any(line.startswith(f"{who} HTTP: load model 'nothing': failed: ") for line in lines)
    assert f"{who} gRPC: load model 'echo': done" in lines
    assert f"{who} gRPC: set log log_verbose_level=0: done" in lines
    assert any(line.startswith(f"{who} HTTP: set trace trace_rate=7\\n; drop: failed: ") for line in lines)


def test_audit_lines_need_no_access_log(tmp_path: Path) -> None:
    write_model(tmp_path, "echo", ECHO)
    with RunningServer(tmp_path, "--model-control-mode=explicit") as server:
        server.wait_until_listening()
        assert server.ask("POST", "/v2/repository/models/echo/load")[0] == 200
        assert "audit: 'anonymous' at 127.0.0.1 over HTTP: load model 'echo': done" in server.log
