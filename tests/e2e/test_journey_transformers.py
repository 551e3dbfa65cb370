"""The transformers journey, as its users type it, with a stand-in for the pipeline that the models call."""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from running_server import RunningServer

PIPELINE = '''"""Stands in for a text-generation pipeline: every prompt is continued with the same words."""


def pipeline(model, max_length):
    if model.startswith("missing/"):
        raise OSError(f"{model} is not a local folder and is not a valid model identifier")
    return lambda prompts: [[{"generated_text": " ".join([p, "to", "be", "continued"])}] for p in prompts]
'''
MODEL = """import json
import os

os.environ["TRANSFORMERS_CACHE"] = "/opt/tritonserver/model_repository/NAME/hf_cache"

import numpy as np
import triton_python_backend_utils as pb_utils
from pipelines import pipeline


class TritonPythonModel:
    def initialize(self, args):
        self.logger = pb_utils.Logger
        self.model_config = json.loads(args["model_config"])
        parameters = self.model_config["parameters"]
        self.max_output_length = int(parameters["max_output_length"]["string_value"])
        hf_model = parameters["huggingface_model"]["string_value"]
        self.logger.log_info(f"Max output length: {self.max_output_length}")
        self.pipeline = pipeline(hf_model, self.max_output_length)

    def execute(self, requests):
        prompts = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
            prompts.append(tensor.reshape(-1)[0].decode("utf-8"))
        responses = []
        for sequences in self.pipeline(prompts):
            text = np.array([s["generated_text"] for s in sequences], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("text_output", text)]))
        return responses

    def finalize(self):
        print("Cleaning up...")
"""
CONFIG = """backend: "python"
parameters: {
    key: "huggingface_model",
    value: {string_value: "HF_MODEL"}
}
parameters {
    key: "max_output_length",
    value: {string_value: "15"}
}
input [
    {
        name: "text_input"
        data_type: TYPE_STRING
        dims: [ 1 ]
    }
]
output [
    {
        name: "text_output"
        data_type: TYPE_STRING
        dims: [ -1 ]
    }
]"""


def write_model(repository: Path, name: str, hf_model: str) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "hf_cache").mkdir()
    (repository / name / "config.pbtxt").write_text(CONFIG.replace("HF_MODEL", hf_model))
    (version / "model.py").write_text(MODEL.replace("NAME", name))
    (version / "pipelines.py").write_text(PIPELINE)


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "model_repository", "falcon7b", "tiiuae/falcon-7b")
    return tmp_path


@pytest.fixture
def serve(folder):
    with ExitStack() as servers:

        def start(*flags: str) -> RunningServer:
            server = servers.enter_context(RunningServer(folder, *flags))
            server.wait_until_listening()
            return server

        yield start


def infer_body(text: str, **changes: object) -> dict[str, object]:
    return {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [text], **changes}]}


def test_one_model_answers_infer_and_generate_and_ends_on_ctrl_c(serve):
    server = serve()
    status, headers, body = server.ask("GET", "/v2/health/ready")
    assert (status, headers["Content-Length"], headers["Content-Type"], body) == (200, "0", "text/plain", b"")
    status, _, body = server.ask("POST", "/v2/models/falcon7b/infer", infer_body("I am going"))
    assert status == 200
    answer = json.loads(body)
    assert (answer["model_name"], answer["model_version"]) == ("falcon7b", "1")
    assert answer["outputs"] == [
        {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": ["I am going to be continued"]}
    ]
    status, _, body = server.ask("POST", "/v2/models/falcon7b/generate", {"text_input": "How can you be"})
    assert status == 200
    assert json.loads(body) == {
        "model_name": "falcon7b",
        "model_version": "1",
        "text_output": "How can you be to be continued",
    }
    workers = server.children()
    assert len(workers) == 1
    assert server.interrupt() == 0
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert "Cleaning up..." in server.log
    assert "Signal (2) received." in server.log


def test_the_log_shows_the_table_and_the_three_started_lines_in_order(serve, folder):
    write_model(folder / "model_repository", "persimmon8b", "adept/persimmon-8b-base")
    log = serve().log
    table = """+-------------+---------+--------+
| Model       | Version | Status |
+-------------+---------+--------+
| falcon7b    | 1       | READY  |
| persimmon8b | 1       | READY  |
+-------------+---------+--------+"""
    assert table in log
    started = re.findall(r"^I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S+:\d+\] Started (\S+)", log, re.MULTILINE)
    assert started == ["GRPCInferenceService", "HTTPService", "Metrics"]
    assert "Max output length: 15" in log


def test_several_models_with_modules_of_the_same_name_serve_side_by_side(serve, folder, monkeypatch):
    monkeypatch.delenv("PRIVATE_REPO_TOKEN", raising=False)
    write_model(folder / "model_repository", "persimmon8b", "adept/persimmon-8b-base")
    write_model(folder / "model_repository", "llama7b", "meta-llama/Llama-2-7b-hf")
    other = folder / "model_repository" / "llama7b" / "1" / "pipelines.py"
    other.write_text(PIPELINE.replace('"continued"', '"told"'))
    server = serve()
    answers = {
        name: json.loads(server.ask("POST", f"/v2/models/{name}/infer", infer_body("x"))[2])["outputs"][0]["data"]
        for name in ("falcon7b", "persimmon8b", "llama7b")
    }
    assert answers == {
        "falcon7b": ["x to be continued"],
        "persimmon8b": ["x to be continued"],
        "llama7b": ["x to be told"],
    }


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v2/models/falcon7b/infer", infer_body("x", datatype="FP32", data=[1.0]), 400),
        ("/v2/models/falcon7b/infer", infer_body("x", shape=[2], data=["x", "y"]), 400),
        ("/v2/models/nosuch/infer", infer_body("x"), 404),
        ("/v2/models/falcon7b/infer", {**infer_body("x"), "outputs": [{"name": "text"}]}, 400),
        ("/v2/models/falcon7b/infer", b"this is not JSON", 500),
    ],
)
def test_wrong_requests_get_an_error_in_json(serve, path, body, status):
    server = serve()
    got, _, answer = server.ask("POST", path, body)
    assert got == status
    assert set(json.loads(answer)) == {"error"}
    assert server.ask("POST", "/v2/models/falcon7b/infer", infer_body("x"))[0] == 200


def test_a_broken_model_is_unavailable_with_its_python_error_while_others_serve(serve, folder):
    write_model(folder / "model_repository", "broken", "missing/model")
    server = serve("--exit-on-error=false")
    assert server.ask("POST", "/v2/models/falcon7b/infer", infer_body("x"))[0] == 200
    assert server.ask("GET", "/v2/health/ready")[0] == 400
    index = {entry["name"]: entry for entry in json.loads(server.ask("POST", "/v2/repository/index")[2])}
    assert index["falcon7b"]["state"] == "READY"
    assert index["broken"]["state"] == "UNAVAILABLE"
    assert "OSError: missing/model is not a local folder" in index["broken"]["reason"]
    assert "UNAVAILABLE: Internal: OSError: missing/model" in server.log


def test_a_broken_model_ends_the_server_with_one_by_default(folder):
    write_model(folder / "model_repository", "broken", "missing/model")
    with RunningServer(folder) as server:
        assert server.process.wait(60) == 1
    assert "error: creating server: Internal - failed to load all models" in server.log


def test_models_see_the_folder_the_server_was_started_in(serve, folder):
    where = folder / "model_repository" / "falcon7b" / "1" / "pipelines.py"
    where.write_text("import os\n" + PIPELINE.replace('"continued"', "os.getcwd()"))
    server = serve()
    body = json.loads(server.ask("POST", "/v2/models/falcon7b/generate", {"text_input": "x"})[2])
    assert body["text_output"].endswith(os.path.realpath(folder))
