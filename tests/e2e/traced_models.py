"""Models whose requests the tests of traces follow: one that takes a moment, one that streams, and an ensemble."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

from running_server import INT_CONFIG, RunningServer, int_request, write_model

STEP = """
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
MANY = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(3):
                time.sleep(0.01)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[number]], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
PIPELINE_CONFIG = """
platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
ensemble_scheduling {
  step [
    { model_name: "step" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "a" } },
    { model_name: "step" model_version: -1 input_map { key: "IN" value: "a" } output_map { key: "OUT" value: "b" } },
    { model_name: "step" model_version: -1 input_map { key: "IN" value: "b" } output_map { key: "OUT" value: "OUT" } }
  ]
}
"""


def write_traced_models(folder: Path) -> None:
    """`step`, `many`, and `pipeline` of three steps."""
    write_model(folder, "step", STEP)
    write_model(folder, "many", MANY, INT_CONFIG + "model_transaction_policy { decoupled: true }\n")
    (folder / "model_repository" / "pipeline").mkdir()
    (folder / "model_repository" / "pipeline" / "config.pbtxt").write_text(PIPELINE_CONFIG)


def infer(server: RunningServer, model: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    connection = server.connect()
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(int_request(1)), headers or {})
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response
