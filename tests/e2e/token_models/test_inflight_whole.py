"""The example of in-flight batching with the model that its own script makes, and not decoupled: one answer each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as httpclient
from inflight_server import copy_example, run_client, tensors
from running_server import RunningServer
from tritonclient.utils import InferenceServerException


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("inflight")
    repository = copy_example(folder)
    done = subprocess.run([sys.executable, str(repository / "make_model.py")], capture_output=True, text=True)
    assert "has a tiny model" in done.stdout, done.stderr
    for model in ("tensorrt_llm", "tensorrt_llm_bls"):
        path = repository / model / "config.pbtxt"
        path.write_text(path.read_text().replace("decoupled: True", "decoupled: False"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        with RunningServer(folder) as server:
            server.wait_until_listening(120)
            yield server


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dataset") / "dataset.json"
    entries = [{"input": f"Text {n}", "instruction": "Go on", "output": "one two three"} for n in range(10)]
    path.write_text(json.dumps([*entries, {"input": "long " * 700, "instruction": "", "output": "left out"}]))
    return path


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_end_to_end_test_succeeds(whole: RunningServer, dataset: Path, protocol: str) -> None:
    words = ["-i", protocol, "-u", f"127.0.0.1:{whole.ports[protocol]}", "--max_input_len", "500"]
    done = run_client("end_to_end_test.py", *words, "--dataset", str(dataset), "-c", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[INFO] Start testing on 10 prompts.\n" in done.stdout
    assert "[INFO] Functionality test succeed.\n" in done.stdout
    assert re.search(r"^\[INFO\] Total Latency: [\d.]+ ms$", done.stdout, re.MULTILINE)


def test_the_end_to_end_test_fails_loudly(whole: RunningServer, dataset: Path) -> None:
    done = run_client("end_to_end_test.py", "-u", "127.0.0.1:9", "--max_input_len", "500", "--dataset", str(dataset))
    assert done.returncode != 0
    assert "Functionality test succeed" not in done.stdout


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_streams_need_a_decoupled_model(whole: RunningServer, model: str) -> None:
    arrays = {
        "text_input": np.array([["a"]], np.object_),
        "max_tokens": np.array([[4]], np.int32),
        "stream": np.array([[True]]),
    }
    with httpclient.InferenceServerClient(f"127.0.0.1:{whole.ports['http']}") as client:
        with pytest.raises(InferenceServerException, match="needs a decoupled model"):
            client.infer(model, tensors(httpclient, arrays))
        arrays["stream"] = np.array([[False]])
        (text,) = client.infer(model, tensors(httpclient, arrays)).as_numpy("text_output")
    assert text.startswith(b"a")


def test_the_client_asks_without_a_stream(whole: RunningServer) -> None:
    folder = whole.log_path.parent / "model_repository" / "tensorrt_llm" / "1" / "model"
    words = ["-u", f"127.0.0.1:{whole.ports['grpc']}", "--tokenizer_dir", str(folder)]
    done = run_client("inflight_batcher_llm_client.py", *words, "-b", "2")
    assert done.returncode == 0, done.stderr
    assert "Got completed request" in done.stdout
    assert done.stdout.count("Output: ") == 2
    done = run_client("inflight_batcher_llm_client.py", *words, "--streaming")
    assert done.returncode != 0
    assert "is not decoupled" in done.stderr
