"""The Falcon ensemble as its people deploy it on Oracle Cloud: their configurations, their requests, their artifact."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from running_server import RunningServer, port_flags, three_ports
from tiny_models import tiny_causal_lm
from tritonclient.utils import InferenceServerException, np_to_triton_dtype
from whole_words import keep_words_whole

EXAMPLE = Path(__file__).parents[3] / "examples" / "falcon-7b-trt"
MODEL_PY = """import mpi4py.MPI
import tensorrt_llm
from tensorrt_llm.runtime import GenerationSession, ModelConfig, SamplingConfig


class TritonPythonModel:
    def initialize(self, args):
        self.session = GenerationSession(ModelConfig(), b"", tensorrt_llm.Mapping(tensorrt_llm.mpi_world_size(), 0))
"""
ENGINE = {"builder_config": {"name": "falcon", "precision": "float16", "tensor_parallel": 1}, "plugin_config": {}}
DEPLOYED = "/opt/ds/model/deployed_model/falcon-7b-trt"
"""What their configurations say, which is not there on this machine."""
PACK = "zip -qr model_artifact.zip falcon-7b-trt && rm -r falcon-7b-trt && unzip -q model_artifact.zip"
OF_CURL = {"Content-Type": "application/x-www-form-urlencoded"}
OPTIONAL = " reshape: { shape: [ ] } optional: true"
EIFFEL = {
    "text_input": "What is the height of Eiffel Tower?", "max_tokens": 30, "bad_words": [""], "stop_words": [""],
    "top_k": 10, "top_p": 1, "end_id": 3, "pad_id": 2,
}  # fmt: skip
CLOUD = {
    "text_input": "Explain Cloud Computing to a school kid", "max_tokens": 30, "bad_words": ["now", "process"],
    "stop_words": [""], "top_k": 20, "top_p": 1, "end_id": 3, "pad_id": 2,
}  # fmt: skip


def deploy(folder: Path) -> Path:
    """The tree of the deployment, with a checkpoint beside the engine's files and no engine."""
    root = folder / "falcon-7b-trt"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("falcon-7b", "*.md", "make_model.py", "__pycache__"))
    version = root / "tensorrt_llm" / "1"
    keep_words_whole(tiny_causal_lm(version / "falcon-7b", "falcon-wide"))
    (version / "model.py").write_text(MODEL_PY)
    (version / "model.cache").write_bytes(b"cache")
    (version / "config.json").write_text(json.dumps(ENGINE))
    (root / "ensemble" / "1" / ".keep").unlink()
    as_they_have_it(root)
    return root


def as_they_have_it(root: Path) -> None:
    """Words are required and not wired; ids are required; paths are absolute; the model is of the python backend."""
    rewrite(
        root / "tensorrt_llm",
        (f'"end_id" data_type: TYPE_UINT32 dims: [ 1 ]{OPTIONAL}', '"end_id" data_type: TYPE_UINT32 dims: [ 1 ]'),
        (f'"pad_id" data_type: TYPE_UINT32 dims: [ 1 ]{OPTIONAL}', '"pad_id" data_type: TYPE_UINT32 dims: [ 1 ]'),
        ('backend: "tensorrtllm"', 'backend: "python"'),
        (r'"falcon-7b"', f'"{DEPLOYED}/tensorrt_llm/1"'),
        (r"(?m)^.*_words_list.*\n", ""),
        (r'(?m)^.*"sequence_length".*\n', ""),
        (r'("output_log_probs".*),', r"\1"),
    )
    rewrite(
        root / "ensemble",
        (r'("(bad|stop)_words" data_type: TYPE_STRING dims: \[ -1 \]) optional: true', r"\1"),
        (r"(?m)^.*(_WORDS_IDS|SEQUENCE_LENGTH).*\n", ""),
    )
    absolute = (r'"tensorrt_llm/1/falcon-7b"', f'"{DEPLOYED}/tensorrt_llm/1/falcon-7b"')
    rewrite(root / "preprocessing", absolute, (r"(_DICT.*) optional: true", r"\1"))
    rewrite(root / "postprocessing", absolute, (r'(?m),\n.*"SEQUENCE_LENGTH".*', ""))


def rewrite(model: Path, *changes: tuple[str, str]) -> None:
    path = model / "config.pbtxt"
    text = path.read_text()
    for old, new in changes:
        text, count = re.subn(old if old.startswith(("(", "r")) or "\\" in old else re.escape(old), new, text)
        assert count, (path, old)
    path.write_text(text)


class DeployedServer(RunningServer):
    def __init__(self, root: Path, **variables: str) -> None:
        self.ports = three_ports()
        program = str(Path(sys.executable).with_name("tritonserver"))
        command = [program, f"--model-repository={root}", *port_flags(self.ports)]
        self._start(root.parent, command, OMP_NUM_THREADS="1", **variables)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deploy(tmp_path_factory.mktemp("deployed") / "opt" / "ds" / "model" / "deployed_model")


@pytest.fixture(scope="module")
def deployed(root: Path) -> Iterator[DeployedServer]:
    with DeployedServer(root) as server:
        server.wait_until_listening(120)
        yield server


def generate(server: RunningServer, **changes: Any) -> tuple[int, dict[str, Any]]:
    body = {name: value for name, value in {**EIFFEL, **changes}.items() if value is not None}
    status, _, answer = server.ask("POST", "/v2/models/ensemble/versions/1/generate", body)
    return status, json.loads(answer)


def test_four_models_are_ready_and_a_prompt_is_continued(deployed: DeployedServer) -> None:
    for model in ("ensemble", "postprocessing", "preprocessing", "tensorrt_llm"):
        assert re.search(rf"^\| {model} +\| 1 +\| READY +\|$", deployed.log, re.MULTILINE)
    status, answer = generate(deployed)
    assert status == 200, answer
    assert (answer["model_name"], answer["model_version"]) == ("ensemble", "1")
    assert answer["text_output"].startswith(EIFFEL["text_input"])
    written = answer["text_output"].removeprefix(str(EIFFEL["text_input"]))
    assert 1 <= len(written.split()) <= 30
    assert generate(deployed)[1] == answer


@pytest.mark.parametrize(("library", "port"), [(httpclient, "http"), (grpcclient, "grpc")])
def test_the_models_in_a_row_are_the_ensemble(deployed: DeployedServer, library: Any, port: str) -> None:
    prompt, length = np.array([["Tell me a story"]], np.object_), np.array([[9]], np.uint32)
    words = np.array([[""]], np.object_)
    ids = {"end_id": np.array([[3]], np.uint32), "pad_id": np.array([[2]], np.uint32)}
    with library.InferenceServerClient(f"127.0.0.1:{deployed.ports[port]}") as client:

        def infer(model: str, **arrays: Any) -> Any:
            inputs = []
            for name, array in arrays.items():
                inputs.append(library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
                inputs[-1].set_data_from_numpy(array)
            return client.infer(model, inputs)

        lists = {"BAD_WORDS_DICT": words, "STOP_WORDS_DICT": words}
        before = infer("preprocessing", QUERY=prompt, REQUEST_OUTPUT_LEN=length, **lists)
        given = {"input_ids": before.as_numpy("INPUT_ID"), "input_lengths": before.as_numpy("REQUEST_INPUT_LEN")}
        tokens = infer("tensorrt_llm", **given, request_output_len=length, **ids).as_numpy("output_ids")
        after = infer("postprocessing", TOKENS_BATCH=tokens).as_numpy("OUTPUT")
        texts = {"text_input": prompt, "max_tokens": length, "bad_words": words, "stop_words": words}
        whole = infer("ensemble", **texts, **ids).as_numpy("text_output")
        assert after.tolist() == whole.tolist()
        with pytest.raises(InferenceServerException, match=r"end_id.*pad_id|pad_id.*end_id"):
            infer("tensorrt_llm", **given, request_output_len=length)
        beams = infer("ensemble", **texts, **ids, beam_width=np.array([[2]], np.uint32)).as_numpy("text_output")
    assert len({*beams.tolist()}) == 2


@pytest.mark.parametrize("missing", [("end_id",), ("pad_id",), ("end_id", "pad_id"), ("bad_words",)])
def test_what_is_missing_is_named(deployed: DeployedServer, missing: tuple[str, ...]) -> None:
    status, answer = generate(deployed, **dict.fromkeys(missing))
    assert status == 400
    for name in missing:
        assert name in answer["error"]


@pytest.mark.skipif(shutil.which("zip") is None, reason="the program is not installed")
def test_the_artifact_serves_predictions_on_oracle_cloud(root: Path, tmp_path: Path) -> None:
    """Other programs lose the empty folder of the ensemble's version, so it is taken away."""
    shutil.copytree(root, tmp_path / "falcon-7b-trt")
    subprocess.run(["bash", "-c", PACK], cwd=tmp_path, check=True)
    (tmp_path / "falcon-7b-trt" / "ensemble" / "1").rmdir()
    variables = {
        "STORAGE_SIZE_IN_GB": "500",
        "MODEL_DEPLOY_PREDICT_ENDPOINT": "/v2/models/ensemble/versions/1/generate",
        "MODEL_DEPLOY_HEALTH_ENDPOINT": "/v2/health/ready",
    }
    with DeployedServer(tmp_path / "falcon-7b-trt", **variables) as server:
        server.wait_until_listening(120)
        status, headers, body = server.ask("GET", "/health")
        assert (status, headers["Content-Length"], headers["Content-Type"], body) == (200, "0", "text/plain", b"")
        with closing(http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)) as connection:
            names = {"model_name": "ensemble", "model_version": "1"}
            connection.request("POST", "/predict", json.dumps(CLOUD), {**names, **OF_CURL})
            response = connection.getresponse()
            answer = json.loads(response.read())
    assert response.status == 200, answer
    assert answer["text_output"].startswith(CLOUD["text_input"])


def test_the_example_is_served_with_the_model_that_its_script_makes(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "falcon", ignore=shutil.ignore_patterns("falcon-7b", "__pycache__"))
    made = subprocess.run([sys.executable, str(tmp_path / "falcon" / "make_model.py")], capture_output=True, text=True)
    assert "has a tiny model" in made.stdout, made.stderr
    with DeployedServer(tmp_path / "falcon") as server:
        server.wait_until_listening(120)
        body = {"text_input": "What is the height of Eiffel Tower?", "max_tokens": 30, "top_k": 10, "top_p": 1}
        status, _, answer = server.ask("POST", "/v2/models/ensemble/versions/1/generate", body)
    assert status == 200, answer
    assert json.loads(answer)["text_output"].startswith(body["text_input"])
