"""`trireme perf` against a server: levels, protocols, streams, sequences, rates."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from running_server import RunningServer

Perf = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("-p", "150", "-s", "10000")
CSV_COLUMNS = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency"
)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_every_level_of_a_range_is_measured(perf: Perf, tmp_path: Path, protocol: str) -> None:
    run = perf(
        "-m", "copy", "--shape", "IN:4", "--concurrency-range", "1:5:2", *QUICK, "-f", "out.csv", protocol=protocol
    )
    assert run.returncode == 0, run.stderr
    assert re.findall(r"^Request concurrency: (\d+)$", run.stdout, re.MULTILINE) == ["1", "3", "5"]
    assert "  Batch size: 1\n  Service Kind: TRITON\n" in run.stdout
    assert len(re.findall(r"Avg request latency: \d+ usec \(overhead \d+ usec \+ queue \d+ usec", run.stdout)) == 3
    assert (f"Avg {'gRPC' if protocol == 'grpc' else 'HTTP'} time: ") in run.stdout
    levels = re.findall(r"^Concurrency: (\d), throughput: [\d.e+]+ infer/sec, latency \d+ usec$", run.stdout, re.M)
    assert levels == ["1", "3", "5"]
    text = (tmp_path / "out.csv").read_text()
    assert text.splitlines()[0] == CSV_COLUMNS
    rates = [float(row["Inferences/Second"]) for row in rows_of(tmp_path / "out.csv")]
    assert rates == sorted(rates)
    assert rates[0] > 0


def test_the_server_saw_as_many_requests_as_the_client_counted(perf: Perf, server: RunningServer) -> None:
    before = server.statistics("texts")["inference_stats"]["success"]["count"]
    run = perf("-m", "texts", "-b", "2", "--request-count", "40", "--concurrency-range", "4")
    assert run.returncode == 0, run.stderr
    assert "    Request count: 40\n" in run.stdout
    assert "    Inference count: 80\n" in run.stdout
    assert server.statistics("texts")["inference_stats"]["success"]["count"] - before == 40


def test_json_tensors_are_sent_where_they_are_wished(perf: Perf) -> None:
    formats = ("--input-tensor-format", "json", "--output-tensor-format", "json")
    run = perf("-m", "texts", "--request-count", "5", *formats)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("distribution", ["constant", "poisson"])
def test_a_request_rate_is_kept(perf: Perf, distribution: str) -> None:
    run = perf(
        "-m", "copy", "--shape", "IN:4", "--request-rate-range", "100", "--request-distribution", distribution,
        "-p", "500", "-s", "10000",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = re.search(r"^Request Rate: 100, throughput: ([\d.]+) infer/sec", run.stdout, re.MULTILINE)
    assert found is not None
    assert 60 < float(found[1]) < 140


def test_intervals_come_from_a_file(perf: Perf, tmp_path: Path) -> None:
    (tmp_path / "intervals").write_text("2000\n8000\n")
    run = perf("-m", "copy", "--shape", "IN:4", "--request-intervals", "intervals", *QUICK)
    assert run.returncode == 0, run.stderr
    assert "Request Rate: 200, throughput: " in run.stdout


def test_streams_count_responses(perf: Perf, tmp_path: Path) -> None:
    run = perf("-m", "words", "--streaming", "--request-count", "20", "-f", "out.csv", protocol="grpc")
    assert run.returncode == 0, run.stderr
    assert "  Detected decoupled model, using the first response for measuring latency\n" in run.stdout
    (row,) = rows_of(tmp_path / "out.csv")
    assert float(row["Response Throughput"]) == pytest.approx(5 * float(row["Inferences/Second"]), rel=1e-3)


def test_an_ensemble_shows_its_steps(perf: Perf, tmp_path: Path) -> None:
    run = perf("-m", "chain", "--shape", "IN:4", *QUICK, "-f", "out.csv", protocol="grpc")
    assert run.returncode == 0, run.stderr
    assert re.search(r"queue \d+ usec \+ compute \d+ usec\)\n\n  Composing models: \n  copy, version: 1\n", run.stdout)
    assert (tmp_path / "copy_v1.out.csv").is_file()
    assert (tmp_path / "texts_of_v1.out.csv").is_file()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("load", [("--concurrency-range", "3"), ("--request-rate-range", "100", "--serial-sequences")])
def test_sequences_have_starts_and_ends(
    perf: Perf, server: RunningServer, protocol: str, load: tuple[str, ...]
) -> None:
    run = perf("-m", "counter", "--sequence-length", "5", *load, "-p", "400", "-s", "10000", protocol=protocol)
    assert run.returncode == 0, run.stderr
    found = re.search(r"Request count: (\d+)\n(?:.*\n){0,2}    Sequence count: (\d+) \(", run.stdout)
    assert found is not None
    assert 3 < int(found[1]) / int(found[2]) < 8
    assert "  Using asynchronous calls for inference\n" in run.stdout


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_may_lie_in_shared_memory(perf: Perf, server: RunningServer, protocol: str) -> None:
    run = perf("-m", "copy", "--shape", "IN:4", "--shared-memory", "system", "--request-count", "10", protocol=protocol)
    assert run.returncode == 0, run.stderr
    assert server.ask("GET", "/v2/systemsharedmemory/status")[2] == b"[]"


def test_binary_search_ends_at_the_limit(perf: Perf) -> None:
    run = perf(
        "-m", "copy", "--shape", "IN:4", "--binary-search", "-l", "60000", "--concurrency-range", "1:4:1", *QUICK
    )
    assert run.returncode == 0, run.stderr
    assert re.findall(r"^Request concurrency: (\d+)$", run.stdout, re.MULTILINE) == ["1", "4"]
    assert "  Latency limit: 60000 msec\n  Concurrency limit: 4 concurrent requests\n" in run.stdout


def test_metrics_are_read_along(perf: Perf, server: RunningServer) -> None:
    url = f"127.0.0.1:{server.ports['metrics']}/metrics"
    run = perf("-m", "copy", "--shape", "IN:4", *QUICK, "--collect-metrics", "--metrics-url", url)
    assert run.returncode == 0, run.stderr
    assert "  Server Prometheus Metrics: \n    Avg GPU Utilization:\n" in run.stdout


@pytest.mark.parametrize(
    ("words", "sent"), [((), 3), (("--request-count", "2"), 2), (("--request-count", "9"), 3)], ids=str
)
def test_a_schedule_is_played_once(perf: Perf, tmp_path: Path, words: tuple[str, ...], sent: int) -> None:
    entries = [{"IN": {"content": [1, 2], "shape": [2]}, "timestamp": [at_ms]} for at_ms in (0, 100, 400)]
    (tmp_path / "data.json").write_text(json.dumps({"data": entries}))
    run = perf("-m", "copy", "--fixed-schedule", "--input-data", "data.json", "--profile-export-file", "p.json", *words)
    assert run.returncode == 0, run.stderr
    assert f"  Sending {sent} benchmark requests\n" in run.stdout
    assert f"    Request count: {sent}\n" in run.stdout
    requests = json.loads((tmp_path / "p.json").read_text())["experiments"][0]["requests"]
    first = requests[0]["timestamp"]
    assert [round((one["timestamp"] - first) / 1e6) for one in requests] == [0, 100, 400][:sent]


def test_a_schedule_that_goes_back_in_time_is_refused(perf: Perf, tmp_path: Path) -> None:
    entries = [{"IN": {"content": [1], "shape": [1]}, "timestamp": [at_ms]} for at_ms in (100, 0)]
    (tmp_path / "data.json").write_text(json.dumps({"data": entries}))
    run = perf("-m", "copy", "--fixed-schedule", "--input-data", "data.json")
    assert run.returncode == 99
    assert "in the order of their timestamps" in run.stderr


def test_intervals_are_warmed_up_as_well(perf: Perf, server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "intervals").write_text("2000\n")
    before = _executed(server, "copy")
    words = ("--request-intervals", "intervals", "--request-count", "10", "--warmup-request-count", "7")
    run = perf("-m", "copy", "--shape", "IN:2", *words)
    assert run.returncode == 0, run.stderr
    assert "    Request count: 10\n" in run.stdout
    assert _executed(server, "copy") - before == 17


def _executed(server: RunningServer, model: str) -> int:
    answer = json.loads(server.ask("GET", f"/v2/models/{model}/stats")[2])
    return int(answer["model_stats"][0]["inference_count"])
