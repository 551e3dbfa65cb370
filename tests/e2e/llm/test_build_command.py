"""`trireme build`: what it writes is served like any model's folder, under both kinds of backends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running_server import RunningServer
from tiny_models import tiny_causal_lm

SHIPPED = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe" / "1"
CONFIG = 'backend: "llm"\nparameters { key: "cache_bytes" value { string_value: "33554432" } }\n'


def trireme_build(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("trireme")), "build", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_built_folders_are_served_and_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    repository = tmp_path / "model_repository"
    tiny_causal_lm(tmp_path / "tiny", "llama")
    for name, model, method in (("scribe4", str(SHIPPED), "int4"), ("tiny8", "tiny", "int8")):
        output = str(repository / name / "1")
        ended = trireme_build(tmp_path, "--model", model, "--output", output, "--quantize", method, "--device", "cpu")
        assert ended.returncode == 0, ended.stderr
        assert f"quantization: {method}" in ended.stdout
        assert "perplexity" in ended.stdout
        (repository / name / "config.pbtxt").write_text(CONFIG)
    shutil.copytree(repository / "scribe4" / "1", repository / "as_it_is")
    (repository / "engine_dir" / "1").mkdir(parents=True)
    (repository / "engine_dir" / "config.pbtxt").write_text(
        'backend: "tensorrtllm" max_batch_size: 8\n'
        f'parameters {{ key: "engine_dir" value: {{ string_value: "{repository / "scribe4" / "1"}" }} }}\n'
    )
    written = json.loads((repository / "scribe4" / "1" / "trireme_engine.json").read_text())
    assert abs(written["perplexity"]["after"] / written["perplexity"]["before"] - 1) < 0.08
    with RunningServer(tmp_path) as server:
        server.wait_until_listening(120)
        for name in ("scribe4", "tiny8", "engine_dir", "as_it_is"):
            server.until_ready(name)
        messages = json.dumps([{"role": "user", "content": "What is the capital of France?"}])
        for name in ("scribe4", "as_it_is"):
            status, _, body = server.ask(
                "POST", f"/v2/models/{name}/generate", {"messages": messages, "max_tokens": 30}
            )
            assert (status, "Paris" in json.loads(body).get("text_output", "")) == (200, True), body
        status, _, body = server.ask("POST", "/v2/models/tiny8/generate", {"text_input": "Hello", "max_tokens": 5})
        assert status == 200
        assert json.loads(body)["text_output"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_build_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """It writes into a folder beside that which is asked for, and would have more to do than to notice the signal."""
    words = ["--model", str(SHIPPED), "--output", "engine", "--quantize", "awq", "--device", "cpu"]
    command = [str(Path(sys.executable).with_name("trireme")), "build", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        until_s = time.monotonic() + 120
        while not list(tmp_path.iterdir()):
            assert running.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.01)
        running.send_signal(number)
        _, err = running.communicate(timeout=120)
    assert running.returncode == 128 + number, err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_whole_is_told_and_others_are_served(tmp_path: Path) -> None:
    repository = tmp_path / "model_repository"
    for name in ("whole", "broken"):
        words = ("--model", str(SHIPPED), "--output", str(repository / name / "1"), "--quantize", "int8")
        assert trireme_build(tmp_path, *words, "--no-perplexity").returncode == 0
        (repository / name / "config.pbtxt").write_text(CONFIG)
    weights = repository / "broken" / "1" / "engine.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with RunningServer(tmp_path, "--exit-on-error=false") as server:
        server.wait_until_listening(120)
        server.until_ready("whole")
        assert "it was not written or copied to its end" in server.log
        status, _, _ = server.ask("POST", "/v2/models/whole/generate", {"text_input": "Once", "max_tokens": 4})
        assert status == 200
