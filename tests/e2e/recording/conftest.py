"""A server that may be recorded, with a model of every kind, and the commands that record and replay."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_server import RunningServer, write_model
from waiting import until

TRIREME = str(Path(sys.executable).with_name("trireme"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]

DOUBLE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if (given < 0).any():
                answers.append(pb_utils.InferenceResponse([], pb_utils.TritonError("no negative numbers")))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", (given * FACTOR).astype(np.int32))]))
        return answers
"""
COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            (number,) = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().ravel()[:1]
            sender = request.get_response_sender()
            for index in range(number):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[index]], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNT_CONFIG = """backend: "python"
max_batch_size: 8
model_transaction_policy { decoupled: true }
input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }]
"""
TOTAL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            key = request.correlation_id()
            (start,) = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().ravel()
            (given,) = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().ravel()
            # The order matters: each step doubles what was there.
            self.totals[key] = given if start else 2 * self.totals[key] + given
            answers.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[self.totals[key]]], np.int32))])
            )
        return answers
"""
TOTAL_CONFIG = """backend: "python"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  oldest { max_candidate_sequences: 4 }
  control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }] }]
}
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
"""


def write_models(folder: Path, factor: int = 2) -> None:
    write_model(folder, "double", DOUBLE.replace("FACTOR", str(factor)))
    write_model(folder, "count", COUNT, COUNT_CONFIG)
    write_model(folder, "total", TOTAL, TOTAL_CONFIG)


class Recorded(RunningServer):
    """With the words that its commands need."""

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.ports['http']}"

    @property
    def grpc_url(self) -> str:
        return f"127.0.0.1:{self.ports['grpc']}"

    def is_recording(self) -> bool:
        return b'"is_active":true' in self.ask("GET", "/v2/recording")[2]

    @contextmanager
    def recording(self, path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
        """`trireme record` under way; it has ended when the block has."""
        command = [TRIREME, "record", self.url, "-o", str(path), *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: self.is_recording() or process.poll() is not None)
                yield process
                process.wait(60)
            finally:
                if process.poll() is None:
                    process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("recorded")
    write_models(folder)
    with Recorded(folder, "--allow-recording=true", "--allow-client-shm=true") as running:
        running.wait_until_ready()
        yield running


@pytest.fixture
def server_with_front_ends(tmp_path: Path) -> Iterator[Recorded]:
    write_models(tmp_path)
    with Recorded(tmp_path, "--allow-recording=true", "--frontend-processes=2") as running:
        running.wait_until_ready()
        yield running


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """`trireme WORDS`."""
    return subprocess.run(
        [TRIREME, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.fixture
def trireme() -> Run:
    return run
