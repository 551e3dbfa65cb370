"""A server with one model of each kind, and the command that loads it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, write_ensemble, write_model

sys.path.insert(0, str(Path(__file__).parent))

from copying_model import COPY

STREAM = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(5):
                word = np.array([("word%d " % number).encode()], dtype=object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", word)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BROKEN = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("it is broken")) for request in requests]
"""
STREAM_CONFIG = """backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }]
"""
TEXT_CONFIG = """backend: "python"
max_batch_size: 4
input [{ name: "IN" data_type: TYPE_STRING dims: [ 2 ] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [ 2 ] }]
"""
SEQUENCE_CONFIG = """backend: "python"
max_batch_size: 8
sequence_batching { max_sequence_idle_microseconds: 60000000 }
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
"""

Perf = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("perf")
    write_model(folder, "copy", COPY)
    write_model(folder, "texts", COPY, TEXT_CONFIG)
    write_model(folder, "broken", BROKEN)
    write_model(folder, "words", STREAM, STREAM_CONFIG)
    write_model(folder, "counter", COPY, SEQUENCE_CONFIG)
    write_ensemble(folder, "chain", [("copy", "IN", "between"), ("texts_of", "between", "OUT")])
    write_model(folder, "texts_of", COPY)
    with RunningServer(folder, "--allow-client-shm=true") as running:
        running.wait_until_listening()
        yield running


@pytest.fixture
def perf(server: RunningServer, tmp_path: Path) -> Perf:
    """Runs `trireme perf` over HTTP, or with `grpc` over gRPC."""

    def run(*words: str, protocol: str = "http", timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        place = f"127.0.0.1:{server.ports[protocol]}"
        command = [sys.executable, "-m", "trireme", "perf", "-i", protocol, "-u", place, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=timeout_s, check=False)

    return run
