"""`trireme analyze` on a running server: every search, what it prints and writes, and the model as it was before."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from analyzed_models import SMALL, STEADY, Analyze, config_of
from running_server import RunningServer

from trireme.tools.analyze.server.process import server_process

HEADERS = [
    "Model",
    "Batch",
    "Concurrency",
    "Model Config Path",
    "Instance Group",
    "Max Batch Size",
    "Satisfies Constraints",
    "Throughput (infer/sec)",
    "p99 Latency (ms)",
]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "results/metrics-model-inference.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_default_search_finds_more_throughput_and_leaves_the_model_as_it_was(
    server: RunningServer, analyze: Analyze, tmp_path: Path, protocol: str
) -> None:
    before = config_of(server, "slow")
    done = analyze("slow", *STEADY, protocol=protocol)
    assert done.returncode == 0, done.stderr
    assert config_of(server, "slow") == before
    lines = done.stdout.splitlines()
    table = lines[lines.index("Result Summary of slow:") :]
    assert table[1].startswith("Model Config Name ")
    assert table[2].startswith("slow_config_")
    assert any(line.startswith("slow_config_default ") for line in table)
    assert "times what the model's own configuration does" in done.stdout
    rows = rows_of(tmp_path)
    assert list(rows[0]) == HEADERS
    best = max(rows, key=lambda row: float(row["Throughput (infer/sec)"]))
    own = [row for row in rows if row["Model Config Path"] == "slow_config_default"]
    assert best["Instance Group"] == "2:CPU", rows
    assert float(best["Throughput (infer/sec)"]) > 2 * max(float(row["Throughput (infer/sec)"]) for row in own)


def test_brute_goes_through_everything_in_the_originals_order(analyze: Analyze, tmp_path: Path) -> None:
    done = analyze("sleeper", *SMALL, "--run-config-search-mode=brute", "--run-config-search-max-concurrency=2")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path)
    names = {row["Model Config Path"]: (row["Instance Group"], row["Max Batch Size"]) for row in rows}
    assert names["sleeper_config_0"] == ("1:CPU", "1")
    assert names["sleeper_config_default"] == ("1:CPU", "2")
    assert len({names[name] for name in names if "default" not in name}) == len(names) - 1
    assert (tmp_path / "output_model_repository/sleeper_config_0/config.pbtxt").read_text().count("max_batch_size: 1")
    throughputs = {}
    for row in rows:
        throughputs.setdefault(row["Model Config Path"], []).append(float(row["Throughput (infer/sec)"]))
    order = list(dict.fromkeys(row["Model Config Path"] for row in rows))
    assert order == sorted(order, key=lambda name: -max(throughputs[name]))


def test_quick_climbs_and_sweeps(analyze: Analyze, tmp_path: Path) -> None:
    done = analyze("sleeper", *SMALL, "--run-config-search-mode=quick", "--num-configs-per-model=1")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path)
    best = rows[0]["Model Config Path"]
    assert [row["Concurrency"] for row in rows if row["Model Config Path"] == best] == ["1", "2", "4", "8"]


def test_the_mode_optuna_draws_as_many_trials_as_it_may(analyze: Analyze, tmp_path: Path) -> None:
    words = ("--run-config-search-mode=optuna", "--optuna-min-trials=8", "--optuna-max-trials=8")
    done = analyze("sleeper", *SMALL, *words, "--num-configs-per-model=1")
    assert done.returncode == 0, done.stderr
    assert len({(row["Model Config Path"], row["Concurrency"]) for row in rows_of(tmp_path)}) >= 8


def test_steps_of_an_ensemble_are_tuned_under_its_load(server: RunningServer, analyze: Analyze, tmp_path: Path) -> None:
    before = [config_of(server, name) for name in ("first", "second", "chain")]
    words = ("--run-config-search-max-model-batch-size=1", "--num-configs-per-model=1", "--shape=IN:4")
    done = analyze("chain", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    assert [config_of(server, name) for name in ("first", "second", "chain")] == before
    rows = rows_of(tmp_path)
    assert {row["Model"] for row in rows} == {"chain"}
    assert any(row["Model Config Path"] == "first_config_default,second_config_default" for row in rows)
    assert rows[0]["Model Config Path"] != "first_config_default,second_config_default"
    assert {row["Instance Group"].count(":CPU") for row in rows} == {2}, "those of both steps"
    page = (tmp_path / "reports/summaries/chain/result_summary.html").read_text()
    assert "Batch sizes of first" in page
    assert "Batch sizes of second" in page


def test_a_model_that_calls_others_is_tuned_with_them(analyze: Analyze, tmp_path: Path) -> None:
    words = (
        "--bls-composing-models=sleeper",
        "--run-config-search-max-model-batch-size=1",
        "--num-configs-per-model=1",
    )
    words += ("--num-configs-per-model=1", "--run-config-search-max-concurrency=4")
    done = analyze("calling", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    assert {len(row["Model Config Path"].split(",")) for row in rows_of(tmp_path)} == {2}


def test_several_models_are_tuned_together(analyze: Analyze, tmp_path: Path) -> None:
    words = ("--run-config-profile-models-concurrently-enable", "--run-config-search-max-model-batch-size=1")
    done = analyze("sleeper", "other", *SMALL, *words, "--num-configs-per-model=1")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path)
    assert {row["Model"] for row in rows} == {"sleeper", "other"}
    assert "sleeper,other" in done.stdout


def test_a_file_lists_configurations_loads_and_goals(analyze: Analyze, tmp_path: Path) -> None:
    (tmp_path / "goals.yaml").write_text(
        """
profile_models:
  sleeper:
    parameters: {concurrency: [1, 2], batch_sizes: 1}
    model_config_parameters:
      max_batch_size: [2, 4]
      dynamic_batching: {max_queue_delay_microseconds: [100]}
      instance_group: [{kind: KIND_CPU, count: [1, 2]}]
    objectives: {perf_latency_p99: 1}
    constraints: {perf_throughput: {min: 1}}
perf_analyzer_flags: {percentile: 95}
"""
    )
    done = analyze("-f", "goals.yaml", "--measurement-interval=100", "--duration-seconds=0.1")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path)
    assert len({row["Model Config Path"] for row in rows}) == 5
    assert {row["Concurrency"] for row in rows} == {"1", "2"}
    text = (tmp_path / "output_model_repository/sleeper_config_0/config.pbtxt").read_text()
    assert "max_queue_delay_microseconds: 100" in text


def test_a_request_rate_is_a_load_too(analyze: Analyze, tmp_path: Path) -> None:
    words = ("--request-rate=20,40", "--reload-model-disable", "--inference-output-fields=model_name,request_rate")
    done = analyze("sleeper", *words, "--measurement-interval=200", "--duration-seconds=0.1")
    assert done.returncode == 0, done.stderr
    assert [row["Request Rate"] for row in rows_of(tmp_path)] == ["20", "40"]
    assert "of 2 combinations" in done.stderr


@pytest.mark.usefixtures("fresh_interpreters")
def test_a_server_that_runs_already_is_known_by_its_processes(tmp_path: Path) -> None:
    (tmp_path / "model_repository").mkdir()
    with RunningServer(tmp_path, "--model-control-mode=explicit") as running:
        running.wait_until_listening()
        assert server_process("localhost", running.ports["http"]) == running.process.pid
        assert server_process("localhost", running.ports["grpc"]) == running.process.pid
