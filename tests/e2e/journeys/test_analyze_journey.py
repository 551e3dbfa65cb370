"""From a slow folder to a tuned one with the commands that people type: perf_analyzer, then model-analyzer."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tiny_models
from huggingface_journey import Journey

ROOT = Path(__file__).parents[3]
BATCHING = "printf 'dynamic_batching { }\\nmax_batch_size: 8\\n' >> model_repository/falcon7b/config.pbtxt"
PROFILE = (
    "model-analyzer profile -m $PWD/model_repository/ --profile-models falcon7b "
    "--run-config-search-max-instance-count=3 --run-config-search-min-model-batch-size=8"
)
SMALLER = "--run-config-search-max-concurrency 4 --run-config-search-max-model-batch-size 16 --measurement-interval 500"
"""What keeps the search short on few cores."""


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has the package's commands, whether or not it is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, place in scripts.items():
        module, _, function = place.partition(":")
        program = folder / name
        program.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        program.chmod(0o755)
    fast = {"TRIREME_COMPAT": "float16"}  # which a CPU only emulates
    return {**os.environ, **fast, "PATH": f"{folder}:{os.environ['PATH']}"}


def run(line: str, folder: Path, shell: dict[str, str]) -> str:
    done = subprocess.run(line, shell=True, cwd=folder, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_folder_is_loaded_batched_and_tuned(
    tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("TRIREME_COMPAT", shell["TRIREME_COMPAT"])
    journey = Journey(tmp_path)
    journey.add("falcon7b", weights=str(short_answers(tmp_path / "falcon")))
    run(BATCHING, tmp_path, shell)
    with journey.served() as server:
        place = f"-u localhost:{server.ports['http']} --metrics-url localhost:{server.ports['metrics']}/metrics"
        line = "perf_analyzer -m falcon7b --collect-metrics --concurrency-range=2:4:2 -p 1500 -s 200"
        output = run(f"{line} {place}", tmp_path, shell)
        assert output.count("Request concurrency: ") == 2
        assert "Avg request latency: " in output
        assert "compute infer" in output
    output = run(f"{PROFILE} {SMALLER} --run-config-search-mode quick", tmp_path, shell)
    check_results(tmp_path, output)
    output = run(f"{PROFILE} {SMALLER}", tmp_path, shell)
    check_results(tmp_path, output)


def short_answers(folder: Path) -> Path:
    """A tiny falcon whose answers end soon, whatever the library's own length is."""
    shutil.copytree(tiny_models.cached("falcon"), folder)
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**settings, "max_new_tokens": 2}))
    return folder


def check_results(folder: Path, output: str) -> None:
    names = [line.split()[0] for line in output.splitlines() if line.startswith("falcon7b_config_")]
    assert "falcon7b_config_default" in names
    assert "falcon7b_config_0" in output
    with (folder / "results/metrics-model-inference.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {int(row["Max Batch Size"]) for row in rows} <= {8, 16}
    assert (folder / "results/metrics-model-gpu.csv").is_file()
    assert (folder / "results/metrics-server-only.csv").is_file()
    assert (folder / "reports/summaries/falcon7b/result_summary.html").is_file()
    assert (folder / "reports/detailed/falcon7b_config_default/detailed_report.html").is_file()
    assert (folder / "output_model_repository/falcon7b_config_default/config.pbtxt").is_file()
    assert "dynamic_batching" in (folder / "model_repository/falcon7b/config.pbtxt").read_text()
