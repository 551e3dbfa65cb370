"""The end of a server: until its last request is answered everybody is told that it stops, and nobody is cut off."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from running_server import INT_CONFIG, RunningServer, exchange, int_request, write_ensemble, write_model

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
GIVEN_UP = "Server is stopping, the request was not answered in time"
GATED = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        print("at the gate", flush=True)
        while not os.path.exists({gate!r}):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests]
"""
STREAMING = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            data = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
            request.get_response_sender().send(data)
        print("one is sent", flush=True)
        time.sleep(600)
"""
LARGE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(request.inputs()[0].as_numpy()[0, 0]) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones((1, size), np.int32))]) for size in sizes]
"""
DECOUPLED = INT_CONFIG + "model_transaction_policy { decoupled: true }\ninstance_group [{ kind: KIND_CPU count: 2 }]\n"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "open"


@pytest.fixture
def start(tmp_path: Path, gate: Path) -> Iterator[Callable[..., RunningServer]]:
    write_model(tmp_path, "gated", GATED.format(gate=str(gate)))
    write_model(tmp_path, "streaming", STREAMING, DECOUPLED)
    write_model(tmp_path, "large", LARGE)
    write_ensemble(tmp_path, "inner", [("large", "IN", "OUT")])
    write_ensemble(tmp_path, "outer", [("inner", "IN", "OUT")])
    write_ensemble(tmp_path, "pipeline", [("gated", "IN", "MIDDLE"), ("large", "MIDDLE", "OUT")])
    servers = []

    def started(*flags: str) -> RunningServer:
        server = RunningServer(tmp_path, *flags)
        servers.append(server)
        server.wait_until_listening()
        return server

    yield started
    for server in servers:
        server.__exit__(None, None, None)


def test_everybody_is_told_while_the_last_request_runs(start: Callable[..., RunningServer], gate: Path) -> None:
    server = start()
    running = _in_background(lambda: server.infer("gated", 7))
    server.until(lambda: "at the gate" in server.log)
    server.process.send_signal(signal.SIGTERM)
    server.until(lambda: "has 1 in-flight inferences" in server.log)

    assert server.status("/v2/health/live") == server.status("/v2/health/ready") == 503
    assert server.status("/v2/models/large/ready") == 503
    assert server.infer("large", 1, request_id="4") == (503, {"error": f"[request id: 4] {STOPPING}"})
    in_ensembles = f"in ensemble 'outer', in ensemble 'inner', [request id: 4] {STOPPING}"
    assert server.infer("outer", 1, request_id="4") == (503, {"error": in_ensembles})
    assert server.infer("nothing", 1)[0] == 404
    assert "nv_inference_count" in server.metrics_page()
    with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        assert _grpc_error(client.is_server_live) == ("StatusCode.UNAVAILABLE", "Server exiting")
        assert _grpc_error(client.is_server_ready) == ("StatusCode.UNAVAILABLE", "Server exiting")
        assert _grpc_error(client.is_model_ready, "large") == ("StatusCode.UNAVAILABLE", "Server not ready")
        assert client.get_server_metadata().name == "triton"
        infer = client.infer
        unknown = "[request id: <id_unknown>]"
        assert _grpc_error(infer, "large", [_input(1)]) == ("StatusCode.UNAVAILABLE", f"{unknown} {STOPPING}")
        told = f"in ensemble 'inner', {unknown} {STOPPING}"
        assert _grpc_error(infer, "inner", [_input(1)]) == ("StatusCode.UNAVAILABLE", told)
        with _Stream(client) as stream:
            client.async_stream_infer("large", [_input(1)])
            assert stream.error() == f"{unknown} {STOPPING}"

    gate.touch()
    status, answer = running.result(20)
    assert (status, answer["outputs"][0]["data"]) == (200, [7])
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log


def test_what_outlives_the_exit_timeout_gets_an_error(start: Callable[..., RunningServer]) -> None:
    server = start("--exit-timeout-secs=3")
    address = f"127.0.0.1:{server.ports['grpc']}"
    with triton.InferenceServerClient(address) as client, triton.InferenceServerClient(address) as other:
        running = _in_background(lambda: server.infer("gated", 7))
        server.until(lambda: "at the gate" in server.log)
        queued = _in_background(lambda: _grpc_error(client.infer, "gated", [_input(1)]))
        events = _in_background(lambda: server.ask("POST", "/v2/models/streaming/generate_stream", {"IN": [[5]]}))
        with _Stream(other) as stream:
            other.async_stream_infer("streaming", [_input(5)])
            assert stream.results.get(timeout=20)[1] is None
            server.until(lambda: server.log.count("one is sent") == 2)
            assert server.interrupt(signal.SIGTERM) == 1
            assert stream.error() == GIVEN_UP
            assert stream.error() == GIVEN_UP  # and the stream ends with it

    assert running.result(20) == (503, {"error": GIVEN_UP})
    assert queued.result(20) == ("StatusCode.UNAVAILABLE", GIVEN_UP)
    status, _, body = events.result(20)
    parts = [json.loads(line.removeprefix(b"data: ")) for line in body.split(b"\n\n") if line]
    assert (status, parts[0]["OUT"], parts[1:]) == (200, 5, [{"error": GIVEN_UP}])
    assert "Exit timeout expired" in server.log
    assert "Traceback" not in server.log


@pytest.mark.parametrize("processes", [1, 2])
def test_an_ensemble_under_way_goes_through_its_steps(
    start: Callable[..., RunningServer], gate: Path, processes: int
) -> None:
    server = start(f"--frontend-processes={processes}")
    with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        over_grpc = _in_background(lambda: client.infer("pipeline", [_input(3)]).as_numpy("OUT").tolist())
        over_http = _in_background(lambda: server.infer("pipeline", 2))
        server.until(lambda: "at the gate" in server.log)
        time.sleep(0.5)  # so that both are taken
        server.process.send_signal(signal.SIGTERM)
        server.until(lambda: "Model 'pipeline' (version 1) has 2 in-flight inferences" in server.log)
        refused = f"in ensemble 'pipeline', [request id: <id_unknown>] {STOPPING}"
        assert server.infer("pipeline", 1) == (503, {"error": refused})
        with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as late:
            assert _grpc_error(late.infer, "pipeline", [_input(1)]) == ("StatusCode.UNAVAILABLE", refused)
            assert _grpc_error(late.is_server_ready) == ("StatusCode.UNAVAILABLE", "Server exiting")
            assert server.status("/v2/health/ready") == 503
        gate.touch()
        assert over_grpc.result(20) == [[1, 1, 1]]
        assert over_http.result(20)[1]["outputs"][0]["data"] == [1, 1]
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log


@pytest.mark.parametrize("processes", [1, 2])
def test_an_ensemble_that_outlives_the_exit_timeout_gets_an_error(
    start: Callable[..., RunningServer], processes: int
) -> None:
    server = start("--exit-timeout-secs=2", f"--frontend-processes={processes}")
    with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        over_grpc = _in_background(lambda: _grpc_error(client.infer, "pipeline", [_input(3)]))
        over_http = _in_background(lambda: server.infer("pipeline", 2))
        server.until(lambda: "at the gate" in server.log)
        time.sleep(0.5)
        assert server.interrupt(signal.SIGTERM) == 1
        assert over_grpc.result(20) == ("StatusCode.UNAVAILABLE", GIVEN_UP)
        assert over_http.result(20) == (503, {"error": GIVEN_UP})
    assert "Exit timeout expired" in server.log
    assert "Traceback" not in server.log


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_interrupt_ends_grpc_calls_and_ensembles_too(
    start: Callable[..., RunningServer], processes: int
) -> None:
    server = start(f"--frontend-processes={processes}")
    with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        over_grpc = _in_background(lambda: _grpc_error(client.infer, "pipeline", [_input(3)]))
        server.until(lambda: "at the gate" in server.log)
        server.process.send_signal(signal.SIGINT)
        server.until(lambda: "has 1 in-flight inferences" in server.log)
        began = time.monotonic()
        assert server.interrupt() == 130
        assert time.monotonic() - began < 10
        assert over_grpc.result(20)[0] == "StatusCode.UNAVAILABLE"
    assert "Traceback" not in server.log


def test_an_answer_that_is_being_read_is_read_to_its_end(start: Callable[..., RunningServer]) -> None:
    server = start()
    count = 16 << 20
    request = json.dumps({**int_request(count), "parameters": {"binary_data_output": True}}).encode()
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30) as connection:
        connection.sendall(
            b"POST /v2/models/large/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(request), request)
        )
        first = connection.recv(1000)
        server.process.send_signal(signal.SIGINT)
        time.sleep(2)  # longer than the models need to end
        response = first
        while part := connection.recv(1 << 20):
            response += part
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert len(body) > 4 * count
    assert server.process.wait(20) == 0


def test_a_request_that_has_not_all_arrived_is_refused(start: Callable[..., RunningServer]) -> None:
    server = start()
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30) as connection:
        connection.sendall(b"POST /v2/models/large/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        server.until(lambda: server.status("/v2/health/ready") == 200)
        server.process.send_signal(signal.SIGINT)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, json.loads(response.read())) == (503, {"error": GIVEN_UP})
    assert server.process.wait(20) == 0


def test_a_stream_without_requests_ends_at_once_and_says_why(start: Callable[..., RunningServer]) -> None:
    server = start()
    with triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client, _Stream(client) as stream:
        client.async_stream_infer("large", [_input(1)])
        assert stream.results.get(timeout=20)[1] is None
        assert server.interrupt() == 0
        assert stream.error() == "GRPC server is shutting down and has stopped accepting new requests."


def test_open_connections_do_not_hold_up_the_end(start: Callable[..., RunningServer]) -> None:
    server = start()
    with closing(server.connect()) as connection:
        assert exchange(connection, "GET", "/v2/health/ready")[0] == 200
        began = time.monotonic()
        assert server.interrupt() == 0
        assert time.monotonic() - began < 10


class _Stream:
    """A ModelStreamInfer whose results and errors wait in a queue."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.results: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def __enter__(self) -> _Stream:
        self._client.start_stream(lambda result, error: self.results.put((result, error)))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_stream(cancel_requests=True)

    def error(self) -> str:
        """The message of the next thing that comes."""
        result, error = self.results.get(timeout=20)
        assert result is None
        return str(error.message())


def _input(value: int) -> Any:
    tensor = triton.InferInput("IN", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[value]], np.int32))
    return tensor


def _grpc_error(call: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    with pytest.raises(triton.InferenceServerException) as caught:
        call(*arguments)
    return caught.value.status(), caught.value.message()


def _in_background(work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


_WAITS = """import os, sys, threading, time
from trireme.app.launch import run
from trireme.config import load
from trireme.config.options.server import ServerOptions

{preparation}
off = {{name: False for name in ("allow_http", "allow_grpc", "allow_metrics")}}
sys.exit(run(ServerOptions(model_repository=(sys.argv[1],), exit_timeout_secs=1, **off)))"""

_READ = """
def read(path):
    print("waits", flush=True)
    return open(path, "rb").read()

load.read_regular = read
"""
_CLOSE = """
from concurrent.futures import ThreadPoolExecutor
from trireme.server.trace.tracing import Tracing

def wait():
    print("waits", flush=True)
    open(sys.argv[1] + "/model/config.pbtxt", "rb").read()

Tracing.close = lambda tracing, pool=ThreadPoolExecutor(1): {call}
load.read_regular = lambda path: os.kill(os.getpid(), 15) or b""
"""


@pytest.mark.parametrize(
    ("preparation", "place"),
    [
        pytest.param(_READ, r"config_bytes \(config/load\.py line \d+\)", id="a-thread-of-the-loop"),
        pytest.param(_CLOSE.format(call="pool.submit(wait)"), r"the thread ThreadPoolExecutor-\d+_0", id="a-pool"),
        pytest.param(_CLOSE.format(call="wait()"), r"_shut_down \(app/application\.py line \d+\)", id="the-loop"),
    ],
)
def test_what_waits_for_a_file_without_end_does_not_hold_up_the_exit_and_is_named(
    tmp_path: Path, preparation: str, place: str
) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "model" / "config.pbtxt")  # in place of a file system that does not answer
    command = [sys.executable, "-c", _WAITS.format(preparation=preparation), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert any(line == "waits\n" for line in server.stdout)
            server.terminate()
            _, errors = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 1, errors
    told = r"error: out of the exit timeout of 1 s, the process ends without what it still waits for: "
    assert re.search(f"^{told}{place}$", errors, re.MULTILINE), errors


_FILLED = """
import logging
output = os.dup(1)
reader, writer = os.pipe()
os.set_blocking(writer, False)
try:
    while os.write(writer, bytes(1 << 16)):
        pass
except BlockingIOError:
    os.set_blocking(writer, True)
os.dup2(writer, 2)

def look():
    writing = logging.StreamHandler.emit.__code__, logging.StreamHandler.flush.__code__
    while sys._current_frames()[threading.main_thread().ident].f_code not in writing:
        time.sleep(0.01)
    os.write(output, b"waits\\n")

threading.Thread(target=look, daemon=True).start()
"""


def test_a_server_whose_log_nobody_reads_ends_within_its_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WAITS.format(preparation=_FILLED), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"waits\n"
            server.terminate()
            assert server.wait(60) == 1
        finally:
            server.kill()
