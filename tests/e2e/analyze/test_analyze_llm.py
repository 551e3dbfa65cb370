"""A language model's engine limits, tuned by tokens per second."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

from analyzed_models import config_of, place_words
from running_server import RunningServer

EXAMPLES = Path(__file__).parents[3] / "examples/model_repository"


def test_the_limits_of_an_engine_are_searched_and_put_back(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "scribe", tmp_path / "model_repository/scribe")
    (tmp_path / "goals.json").write_text(
        json.dumps(
            {
                "genai_perf_flags": {"isl": 8, "osl": 4},
                "constraints": {"time_to_first_token_p99": {"max": 60_000}},
                "inference_output_fields": "model_config_path,concurrency,output_token_throughput",
            }
        )
    )
    words = ["--run-config-search-max-sequences=8", "--run-config-search-max-concurrency=2", "-f", "goals.json"]
    words += ["--num-configs-per-model=1", "--duration-seconds=0.1"]
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=scribe") as server:
        server.wait_until_ready()
        before = config_of(server, "scribe")
        command = [sys.executable, "-m", "trireme", "analyze", "scribe", *words, *place_words(server)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=115, check=False)
        assert done.returncode == 0, done.stderr
        assert config_of(server, "scribe") == before
    assert "Max Sequences   Max Step Tokens" in done.stdout
    assert "tokens per second (" in done.stdout
    with (tmp_path / "results/metrics-model-inference.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"scribe_config_default", "scribe_config_0"} <= {row["Model Config Path"] for row in rows}
    assert all(float(row["Output Token Throughput (tokens/sec)"]) > 0 for row in rows)
    text = (tmp_path / "output_model_repository/scribe_config_0/config.pbtxt").read_text()
    assert 'key: "max_sequences"' in text
    page = (tmp_path / "reports/summaries/scribe/result_summary.html").read_text()
    assert "tokens per second" in page


def test_prompts_fit_a_model_of_little_context(tmp_path: Path) -> None:
    """Prompts are usually longer than this model takes."""
    shutil.copytree(EXAMPLES / "scribe", tmp_path / "model_repository/scribe")
    (tmp_path / "short.json").write_text('{"genai_perf_flags": {"osl": 4}}')
    (tmp_path / "long.json").write_text('{"genai_perf_flags": {"isl": 700, "osl": 4}}')
    words = ["--run-config-search-disable", "--concurrency=1", "--duration-seconds=0.1"]
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=scribe") as server:
        server.wait_until_ready()
        command = [sys.executable, "-m", "trireme", "analyze", "scribe", *words, *place_words(server)]
        long, short = (
            subprocess.run(
                [*command, "-f", file], cwd=tmp_path, capture_output=True, text=True, timeout=115, check=False
            )
            for file in ("long.json", "short.json")
        )
    assert short.returncode == 0, short.stderr
    assert "Result Summary of scribe:" in short.stdout
    assert long.returncode == 2, long.stderr
    assert "under genai_perf_flags makes shorter ones" in long.stderr
