"""From a slow folder to a tuned one with the commands that people type: perf_analyzer, then model-analyzer."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny_models
from huggingface_journey import Journey, generate
from running_server import RunningServer

BATCHING = "printf 'dynamic_batching { }\\nmax_batch_size: 8\\n' >> model_repository/falcon7b/config.pbtxt"
PERF = "perf_analyzer -m falcon7b --collect-metrics"
ENOUGH = "--request-count 120"
"""What people do not type: so many requests are measured, however long they take."""
WINDOWS = "--measurement-interval 200 -s 999 -r 30"
"""The same for a range, whose windows end with the time: short ones, which need not agree, and more of them where a
machine is so busy that one passes without an answer."""
PROFILE = (
    "model-analyzer profile -m $PWD/model_repository/ --profile-models falcon7b "
    "--run-config-search-max-instance-count=3 --run-config-search-min-model-batch-size=8"
)
FEWER = "--run-config-search-max-concurrency 4 --measurement-interval 50 --duration-seconds 0.1"
SMALLER = f"{FEWER} --run-config-search-max-model-batch-size 16"
"""What people do not type: up to 1024 clients of a model that answers some ten requests per second take an hour, and
each measurement keeps all cores busy for as long as its windows are."""
CLIENTS = 16


@pytest.fixture
def shell() -> dict[str, str]:
    """An environment whose PATH has the package's commands."""
    fast = {"TRIREME_COMPAT": "float16"}  # which a CPU only emulates
    return {**os.environ, **fast, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(line: str, folder: Path, shell: dict[str, str]) -> str:
    """What a line of one command prints; it is split as a shell does it, so that the command can be forked."""
    return run_words(shlex.split(line.replace("$PWD", str(folder))), folder, shell)


def run_words(words: list[str], folder: Path, shell: dict[str, str]) -> str:
    done = subprocess.run(words, cwd=folder, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_folder_is_loaded_batched_and_tuned(
    tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("TRIREME_COMPAT", shell["TRIREME_COMPAT"])
    journey = Journey(tmp_path)
    journey.add("falcon7b", weights=str(short_answers(tmp_path / "falcon")))
    with journey.served() as server:
        alone = throughputs(run(f"{PERF} {ENOUGH} {place(server)}", tmp_path, shell))
        assert list(alone) == [1]
    run_words(["sh", "-c", BATCHING], tmp_path, shell)
    with journey.served() as server:
        batched = throughputs(run(f"{PERF} --concurrency-range=2:16:2 {WINDOWS} {place(server)}", tmp_path, shell))
        assert list(batched) == [2, 4, 6, 8, 10, 12, 14, 16]
        again = f"{PERF} --concurrency-range={CLIENTS} {ENOUGH} {place(server)}"
        check_gain(alone[1], batched[CLIENTS], lambda: throughputs(run(again, tmp_path, shell))[CLIENTS])
        check_batches(server)
        check_answers(server)
    check_results(tmp_path, run(f"{PROFILE} --run-config-search-mode quick {FEWER}", tmp_path, shell), most_batch=128)
    shutil.rmtree(tmp_path / "checkpoints")
    check_results(tmp_path, run(f"{PROFILE} {SMALLER}", tmp_path, shell), most_batch=16)


def check_gain(alone: float, together: float, measure_again: Callable[[], float]) -> None:
    """All clients together get twice what one alone gets without batches; what else the machine does at the moment can
    only make them slower, so that one measurement of three is enough."""
    for _ in range(2):
        if together < 2 * alone:
            together = max(together, measure_again())
    assert together >= 2 * alone


def place(server: RunningServer) -> str:
    return f"-u localhost:{server.ports['http']} --metrics-url localhost:{server.ports['metrics']}/metrics"


def throughputs(output: str) -> dict[int, float]:
    """By concurrency, with what else the output has for each of them."""
    parts = output.split("Request concurrency: ")[1:]
    for part in parts:
        assert "Avg request latency: " in part
        assert "compute infer" in part
    return {int(part.split()[0]): float(part.partition("Throughput: ")[2].split()[0]) for part in parts}


def check_batches(server: RunningServer) -> None:
    (counts,) = json.loads(server.ask("GET", "/v2/models/falcon7b/stats")[2])["model_stats"]
    assert counts["execution_count"] < counts["inference_count"]
    assert counts["inference_stats"]["fail"]["count"] == 0


def check_answers(server: RunningServer) -> None:
    """Each of many at once has its own prompt in its answer."""
    prompts = [f"client {number} says {chr(97 + number) * 8}" for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(lambda prompt: generate(server, "falcon7b", prompt)["text_output"], prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert any(prompt in text for text in ([answer] if isinstance(answer, str) else answer)), (prompt, answer)


def short_answers(folder: Path) -> Path:
    """A tiny falcon whose answers end soon, whatever the library's own length is."""
    shutil.copytree(tiny_models.cached("falcon"), folder)
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**settings, "max_new_tokens": 2}))
    return folder


def check_results(folder: Path, output: str, most_batch: int) -> None:
    names = [line.split()[0] for line in output.splitlines() if line.startswith("falcon7b_config_")]
    assert "falcon7b_config_default" in names
    assert set(names) > {"falcon7b_config_default"}
    with (folder / "results/metrics-model-inference.csv").open() as file:
        rows = list(csv.DictReader(file))
    sizes = {int(row["Max Batch Size"]) for row in rows}
    assert min(sizes) == 8
    assert max(sizes) <= most_batch
    assert (folder / "results/metrics-model-gpu.csv").is_file()
    assert (folder / "results/metrics-server-only.csv").is_file()
    assert (folder / "reports/summaries/falcon7b/result_summary.html").is_file()
    assert (folder / "reports/detailed/falcon7b_config_default/detailed_report.html").is_file()
    assert (folder / "output_model_repository/falcon7b_config_default/config.pbtxt").is_file()
    assert "dynamic_batching" in (folder / "model_repository/falcon7b/config.pbtxt").read_text()
