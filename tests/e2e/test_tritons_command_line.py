"""What Triton's own command line and control examples expect, with the answers of Triton 2.51 to the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running_server import RunningServer, write_model

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


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_repository_that_does_not_exist_leaves_the_server_up_where_errors_are_no_reason_to_exit(
    tmp_path: Path, mode: str
) -> None:
    with RunningServer(tmp_path, "--exit-on-error=false", f"--model-control-mode={mode}") as server:
        server.wait_until_listening()
        assert (server.status("/v2/health/live"), server.status("/v2/health/ready"), server.status("/v2")) == (
            400,
            400,
            200,
        )
        for method, path in (("POST", "/v2/repository/index"), ("GET", "/v2/models/any/ready")):
            assert server.ask(method, path)[0] == 503
        assert json.loads(server.ask("POST", "/v2/repository/index")[2]) == {"error": "Server not ready"}
        assert server.interrupt() == 0


def test_without_that_flag_it_ends_the_start(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server:
        assert server.process.wait(20) == 1
        assert "model_repository" in server.log


@pytest.mark.parametrize(("pattern", "forwarded"), [("(?-i)^My", {"MyHeader": "a"}), ("^My", None)])
def test_patterns_of_headers_know_the_flags_of_re2(
    tmp_path: Path, pattern: str, forwarded: dict[str, str] | None
) -> None:
    write_model(tmp_path, "says", SAYS, SAYS_CONFIG)
    headers = {"MyHeader": "a", "myheader-two": "b"}
    with RunningServer(tmp_path, f"--http-header-forward-pattern={pattern}") as server:
        server.wait_until_listening()
        body = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]})
        connection = server.connect()
        connection.request("POST", "/v2/models/says/infer", body, headers)
        (text,) = json.loads(connection.getresponse().read())["outputs"][0]["data"]
        assert json.loads(text) == (forwarded or headers)


def test_a_batch_size_of_a_load_request_is_kept_by_a_model_that_completes_its_configuration(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "simple", COMPLETES)
    (folder / "config.pbtxt").unlink()
    with RunningServer(tmp_path, "--model-control-mode=explicit") as server:
        server.wait_until_listening()

        def load(config: str | None = None) -> int:
            body = {} if config is None else {"parameters": {"config": config}}
            return server.ask("POST", "/v2/repository/models/simple/load", body)[0]

        def batch_size() -> int:
            return int(json.loads(server.ask("GET", "/v2/models/simple/config")[2])["max_batch_size"])

        assert (load(), batch_size()) == (200, 8)
        assert (load('"parameters": {"config": {{"max_batch_size": "16"}}}'), batch_size()) == (500, 8)
        assert (load('{"max_batch_size":"16"}'), batch_size()) == (200, 16)
        assert (load('{"backend":"python","max_batch_size":4}'), batch_size()) == (200, 4)
