"""Flags, loads and registrations: what is accepted, and with which words the rest is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import grpc
import pytest
from compared_server import Starter
from running_server import write_model
from tritonclient.grpc import service_pb2 as messages

IDLE = """
class TritonPythonModel:
    def execute(self, requests): return []
"""
SAYS = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        texts = [np.array([request.parameters()], dtype=object) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for text in texts]
"""
SAYS_CONFIG = """backend: "python"
input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }]
"""
QUESTION = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}
COMPLETES = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        known = config.as_dict()
        if not known["input"]:
            config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
            config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]})
        if known["max_batch_size"] == 0:
            config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config
    def execute(self, requests): return []
"""


def test_a_batch_size_of_a_load_request_is_kept_by_a_model_that_completes_itself(
    start: Starter, tmp_path: Path
) -> None:
    folder = write_model(tmp_path, "simple", COMPLETES)
    (folder / "config.pbtxt").unlink()
    server = start("--model-control-mode=explicit")

    def batch_size() -> int:
        return int(json.loads(server.ask("GET", "/v2/models/simple/config")[2])["max_batch_size"])

    assert (server.load("simple"), batch_size()) == (200, 8)
    assert server.load("simple", '"parameters": {"config": {{"max_batch_size": "16"}}}') == 500
    assert batch_size() == 8
    assert (server.load("simple", '{"max_batch_size":"16"}'), batch_size()) == (200, 16)
    assert (server.load("simple", '{"backend":"python","max_batch_size":4}'), batch_size()) == (200, 4)


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_repository_that_is_not_there_leaves_the_server_up_where_errors_do_not_end_it(
    start: Starter, mode: str
) -> None:
    server = start("--exit-on-error=false", f"--model-control-mode={mode}")
    assert [server.status(path) for path in ("/v2/health/live", "/v2/health/ready", "/v2")] == [400, 400, 200]
    status, _, body = server.ask("POST", "/v2/repository/index")
    assert (status, json.loads(body)) == (503, {"error": "Server not ready"})
    assert server.interrupt() == 0


def test_without_that_flag_it_ends_the_start(start: Starter) -> None:
    server = start(is_to_listen=False)
    assert server.process.wait(60) == 1
    assert "model_repository" in server.log


@pytest.mark.parametrize(
    ("pattern", "forwarded"),
    [("(?-i)^My", {"MyHeader"}), ("^My", {"MyHeader", "myheader-two"}), ("(?i)^my.*t", {"myheader-two"})],
)
def test_patterns_of_headers_are_read_as_re2_reads_them(
    start: Starter, tmp_path: Path, pattern: str, forwarded: set[str]
) -> None:
    write_model(tmp_path, "says", SAYS, SAYS_CONFIG)
    server = start(f"--http-header-forward-pattern={pattern}")
    connection = server.connect()
    connection.request("POST", "/v2/models/says/infer", json.dumps(QUESTION), {"MyHeader": "a", "myheader-two": "b"})
    (text,) = json.loads(connection.getresponse().read())["outputs"][0]["data"]
    assert set(json.loads(text)) == forwarded


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0.25:0.05,0.75:0.01,0.999:0.0001", {"0.25", "0.75", "0.999"}),
        (" 0.5 : 0.1 , 0.9:0.01,", {"0.5", "0.9"}),
        ("0.5:0.1:0.2", {"0.5"}),
    ],
)
def test_quantiles_of_the_summaries_are_those_that_were_asked_for(
    start: Starter, tmp_path: Path, written: str, read: set[str]
) -> None:
    write_model(tmp_path, "says", SAYS, SAYS_CONFIG)
    server = start("--metrics-config=summary_latencies=true", f"--metrics-config=summary_quantiles={written}")
    status, _, body = server.ask("POST", "/v2/models/says/infer", QUESTION)
    assert status == 200, body
    found = re.findall(r'^nv_inference_request_summary_us\{.*quantile="([^"]+)"\}', server.metrics_page(), re.MULTILINE)
    assert set(found) == read


INVALID = ("INVALID_ARGUMENT", "failed to register shared memory region: invalid args")
REGISTRATIONS = {
    "SystemSharedMemoryRegister": [
        (
            messages.SystemSharedMemoryRegisterRequest(key="/no_such_region", byte_size=8),
            ("INTERNAL", "Unable to open shared memory region: '/no_such_region'"),
        )
    ],
    "CudaSharedMemoryRegister": [
        (messages.CudaSharedMemoryRegisterRequest(raw_handle=b"h", byte_size=8), INVALID),
        (messages.CudaSharedMemoryRegisterRequest(name="r", byte_size=8), INVALID),
        (messages.CudaSharedMemoryRegisterRequest(), INVALID),
    ],
}


def test_registrations_without_a_name_or_handle_are_refused_alike(start: Starter, tmp_path: Path) -> None:
    write_model(tmp_path, "idle", IDLE)
    server = start(own_flags=("--allow-client-shm=true",))
    with grpc.insecure_channel(f"127.0.0.1:{server.ports['grpc']}") as channel:
        for method, cases in REGISTRATIONS.items():
            path = f"/inference.GRPCInferenceService/{method}"
            for request, answer in cases:
                with pytest.raises(grpc.RpcError) as refused:
                    channel.unary_unary(path)(request.SerializeToString())
                assert (refused.value.code().name, refused.value.details()) == answer


@pytest.mark.parametrize(("mode", "said"), [("none", ""), ("poll", " if polling is enabled")])
def test_a_load_is_refused_outside_the_explicit_mode(start: Starter, tmp_path: Path, mode: str, said: str) -> None:
    write_model(tmp_path, "idle", IDLE)
    server = start(f"--model-control-mode={mode}")
    for verb in ("load", "unload"):
        status, _, body = server.ask("POST", f"/v2/repository/models/idle/{verb}", {})
        assert status == 503
        assert json.loads(body)["error"].startswith(f"explicit model load / unload is not allowed{said}")
    is_polling_named = "polling" in json.loads(body)["error"]
    assert is_polling_named == (mode == "poll" or not server.is_ours)
