"""Python models: what Triton gives them and what it makes of their mistakes."""

from __future__ import annotations

import json
import queue
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_server import ComparedServer, Starter, tensor
from running_server import INT_CONFIG, write_model
from waiting import until

import trireme

SOURCES = Path(trireme.__file__).parent.parent
CALLER = """
import json
import multiprocessing
import numpy as np
import triton_python_backend_utils as pb_utils

def request(model, inputs, outputs, **options):
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    return pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=outputs, **options)

def summary(response):
    if response.has_error():
        return response.error().message()
    return [tensor.as_numpy().reshape(-1).tolist() for tensor in response.output_tensors()]

def plus_one(value):
    return summary(request("plus", {"IN": np.array([[value]], dtype=np.int32)}, ["OUT"]).exec())

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for given in requests:
            found = getattr(self, given.inputs()[0].as_numpy()[0].decode())()
            text = np.array([json.dumps(found).encode()], dtype=object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)]))
        return responses

    def bytes_for_names(self):
        tensor = pb_utils.Tensor(b"IN", np.array([[1]], dtype=np.int32))
        inner = pb_utils.InferenceRequest(
            request_id=b"inner", model_name=b"plus", inputs=[tensor], requested_output_names=[b"OUT"]
        )
        return [tensor.name(), inner.request_id(), summary(inner.exec())]

    def absent(self):
        return summary(request("nosuch", {}, []).exec())

    def absent_and_decoupled(self):
        return [summary(response) for response in request("nosuch", {}, []).exec(decoupled=True)]

    def too_late(self):
        return summary(request("queued", {"IN": np.array([[1]], dtype=np.int32)}, ["OUT"], timeout=1).exec())

    def in_time(self):
        return summary(request("queued", {"IN": np.array([[1]], dtype=np.int32)}, ["OUT"], timeout=4_000_000).exec())

    def from_processes(self):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.map(plus_one, [0, 1, 2])

    def counted(self, mode):
        inner = request("count", {"IN": np.array([mode], dtype=np.int32)}, ["OUT"])
        return [summary(response) for response in inner.exec(decoupled=True)]

    def ends_with_the_last(self):
        return self.counted(0)

    def ends_on_its_own(self):
        return self.counted(1)

    def gives_nothing(self):
        return self.counted(2)
"""
CALLER_CONFIG = """backend: "python"
input [{ name: "WAY" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }]
"""
PLUS = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() + 1 for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in values]
"""
QUEUED_CONFIG = (
    INT_CONFIG
    + """dynamic_batching { default_queue_policy {
  timeout_action: REJECT default_timeout_microseconds: 5000000 allow_timeout_override: true } }
"""
)
COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            mode = int(request.inputs()[0].as_numpy()[0])
            if mode < 2:
                for number in range(3):
                    tensor = pb_utils.Tensor("OUT", np.array([number], dtype=np.int32))
                    flags = FINAL if number == 2 and mode == 0 else 0
                    sender.send(pb_utils.InferenceResponse([tensor]), flags=flags)
            if mode > 0:
                sender.send(flags=FINAL)
"""
COUNT_CONFIG = """backend: "python"
model_transaction_policy { decoupled: true }
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
"""
NOT_READY = "Failed for execute the inference request. Model 'nosuch' is not ready."


def write_caller(folder: Path) -> None:
    write_model(folder, "caller", CALLER, CALLER_CONFIG)
    write_model(folder, "plus", PLUS)


def said(server: ComparedServer, way: str) -> Any:
    """What came of the calls that the caller makes in this way."""
    asked = {"inputs": [{"name": "WAY", "datatype": "BYTES", "shape": [1], "data": [way]}]}
    status, _, body = server.ask("POST", "/v2/models/caller/infer", asked)
    assert status == 200, body
    return json.loads(json.loads(body)["outputs"][0]["data"][0])


def test_calls_between_models_are_answered_alike(start: Starter, tmp_path: Path) -> None:
    write_caller(tmp_path)
    write_model(tmp_path, "queued", PLUS, QUEUED_CONFIG)
    write_model(tmp_path, "count", COUNT, COUNT_CONFIG)
    server = start()
    assert said(server, "bytes_for_names") == ["IN", "inner", [[2]]]
    assert NOT_READY in said(server, "absent")
    (only,) = said(server, "absent_and_decoupled")
    assert NOT_READY in only
    assert "Request timeout expired" in said(server, "too_late")
    assert said(server, "in_time") == [[2]]
    assert said(server, "ends_with_the_last") == [[[0]], [[1]], [[2]]]
    assert said(server, "ends_on_its_own") == [[[0]], [[1]], [[2]], []]
    assert said(server, "gives_nothing") == [[]]


def test_processes_that_a_model_starts_call_as_well(start: Starter, tmp_path: Path) -> None:
    write_caller(tmp_path)
    assert said(start(), "from_processes") == [[[1]], [[2]], [[3]]]


TWICE = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in (1, 2):
                tensor = pb_utils.Tensor("OUT", np.array([[number]], dtype=np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]), flags=FLAGS)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.mark.parametrize("flags", ["0", "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"])
def test_of_two_responses_of_a_model_that_is_not_decoupled_the_first_counts(
    start: Starter, tmp_path: Path, flags: str
) -> None:
    write_model(tmp_path, "twice", TWICE.replace("FLAGS", flags))
    server = start()
    found: queue.Queue[Any] = queue.Queue()
    with server.client() as client:
        client.start_stream(lambda result, error: found.put(error or result.as_numpy("OUT").tolist()))
        client.async_stream_infer("twice", [tensor("IN", np.array([[0]], dtype=np.int32))])
        assert found.get(timeout=20) == [[1]]
        until(lambda: "Non-decoupled model cannot send more than one response." in server.log)


LEAVER = """
import os, signal
class TritonPythonModel:
    def initialize(self, args): os.kill(os.getpid(), signal.SIGKILL)
    def execute(self, requests): return []
"""
TALKER = """
class TritonPythonModel:
    def execute(self, requests): return []
    def finalize(self): print("the last words", flush=True)
"""


def test_an_end_in_initialize_names_the_instance_and_words_of_finalize_are_logged(
    start: Starter, tmp_path: Path
) -> None:
    write_model(tmp_path, "leaver", LEAVER, INT_CONFIG + "instance_group [{ kind: KIND_CPU }]")
    write_model(tmp_path, "talker", TALKER)
    server = start("--exit-on-error=false")
    assert "Stub process 'leaver_0_0' is not healthy" in server.index()["leaver"]["reason"]
    assert "the last words" not in server.log
    assert server.interrupt() == 0
    assert "the last words" in server.log


NEEDS_TOKEN = """
import os
class TritonPythonModel:
    def initialize(self, args): self.token = os.environ["PRIVATE_REPO_TOKEN"]
    def execute(self, requests): return []
"""
UNCHANGED = 'parameters { key: "compat" value: { string_value: "off" } }\n'


def test_a_model_without_its_token_is_unavailable_and_the_variable_is_named(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRIVATE_REPO_TOKEN", raising=False)
    write_model(tmp_path, "needs_token", NEEDS_TOKEN, INT_CONFIG + UNCHANGED)
    server = start("--exit-on-error=false")
    assert "PRIVATE_REPO_TOKEN" in server.index()["needs_token"]["reason"]
    table = [line for line in server.log.splitlines() if line.startswith("|")]
    assert any("PRIVATE_REPO_TOKEN" in line for line in table)


OLD_NUMPY = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        found = np.array([[np.NINF < 0, np.float_(2), np.product([1, 5])]], dtype=np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", found)]) for _ in requests]
"""
COMPAT = 'parameters { key: "compat" value: { string_value: "numpy1" } }\n'


def test_a_file_written_for_numpy_1_runs_with_a_parameter_that_triton_does_not_mind(
    start: Starter, tmp_path: Path
) -> None:
    write_model(tmp_path, "old", OLD_NUMPY, INT_CONFIG + COMPAT)
    status, answer = start().infer("old", 1)
    assert (status, answer["outputs"][0]["data"]) == (200, [1, 2, 5])


SAYS_MODULE = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        print("module", pb_utils.__file__, pb_utils.get_model_dir(), flush=True)
        found = [np.array([[len(requests)]], dtype=np.int32) for _ in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one)]) for one in found]
"""


def test_our_module_makes_way_for_tritons_in_its_own_process(start: Starter, tmp_path: Path) -> None:
    version = write_model(tmp_path, "both", SAYS_MODULE) / "1"
    for name in ("trireme", "triton_python_backend_utils"):  # found before Triton's, as in an environment of both
        (version / name).symlink_to(SOURCES / name)
    server = start()
    assert server.infer("both", 1)[0] == 200
    until(lambda: "module " in server.log)
    (place,) = re.findall(r"module (\S+) \S*both/1$", server.log, re.MULTILINE)
    assert ("backends/python" in place) != server.is_ours
