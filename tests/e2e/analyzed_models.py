"""Models to analyze, and the words of the command for a server that runs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from running_server import RunningServer, write_ensemble, write_model

SLEEP = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]
            )
            for request in requests
        ]
"""
SLOW = SLEEP.replace("0.01", "0.08")
"""So slow that a busy machine does not change its throughput."""
CALLING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="sleeper",
                requested_output_names=["OUT"],
                inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
            )
            answers.append(pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(call.exec(), "OUT")]))
        return answers
"""
BROKEN = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("it is broken")) for request in requests]
"""
CONFIG = """# a comment that stays
backend: "python"
max_batch_size: 2  # small
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 4 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 4 ] }]
"""
SHAPELESS = CONFIG.replace("dims: [ 4 ]", "dims: [ -1 ]")
SMALL = (
    "--run-config-search-max-instance-count=2",
    "--run-config-search-max-model-batch-size=4",
    "--run-config-search-max-concurrency=8",
    "--measurement-interval=100",
    "--duration-seconds=0.1",
    "--monitoring-interval=0.1",
)
"""A space that is searched in seconds."""
STEADY = (*SMALL, "--measurement-interval=300")
"""The same with windows so long that a busy machine does not change which configuration is the best."""

Analyze = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


def write_models(folder: Path) -> None:
    write_model(folder, "sleeper", SLEEP, CONFIG)
    write_model(folder, "other", SLEEP, CONFIG)
    write_model(folder, "slow", SLOW, CONFIG)
    write_model(folder, "shapeless", SLEEP, SHAPELESS)
    write_model(folder, "broken", BROKEN, CONFIG)
    write_model(folder, "calling", CALLING, CONFIG)
    write_model(folder, "first", SLEEP)
    write_model(folder, "second", SLEEP)
    write_ensemble(folder, "chain", [("first", "IN", "between"), ("second", "between", "OUT")])


def place_words(server: RunningServer, protocol: str = "grpc") -> list[str]:
    return [
        "--client-protocol",
        protocol,
        "--url",
        f"127.0.0.1:{server.ports[protocol]}",
        "--triton-metrics-url",
        f"127.0.0.1:{server.ports['metrics']}/metrics",
    ]


def config_of(server: RunningServer, model: str = "sleeper") -> dict[str, object]:
    return dict(json.loads(server.ask("GET", f"/v2/models/{model}/config")[2]))


def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
