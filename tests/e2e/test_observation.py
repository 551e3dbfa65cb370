"""The metrics page and the statistics of a real server after traffic of which every request is known."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from running_server import INT_CONFIG, RunningServer, int_request, write_model

COUNTED = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            order = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if order[0, 0] == 2:
                error = pb_utils.TritonError("refused")
                responses.append(pb_utils.InferenceResponse([], error))
                continue
            if order[0, 0] == 3:
                raise ValueError("broken")
            if order[0, 0] > 3:
                time.sleep(order[0, 0] / 1000)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", order)]))
        return responses
"""
METERED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily
        self.tokens = family(name="tokens_total", description="Tokens made", kind=family.COUNTER)
        self.made = self.tokens.Metric(labels={"model": "metered", "kind": "new"})
        self.loads = family(name="load_seconds", description="Time of loads", kind=family.HISTOGRAM)
        self.load = self.loads.Metric(labels={"model": "metered"}, buckets=[0.1, 1.0])
        self.load.observe(0.5)

    def execute(self, requests):
        for request in requests:
            self.made.increment(float(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().sum()))
        out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
TAG = 'metric_tags { key: "team" value: "row" }\n'
IMPATIENT = """dynamic_batching {
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 20000 }
}
"""
COUNTERS = (
    "nv_inference_request_success",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("observed")
    write_model(folder, "counted", COUNTED, INT_CONFIG + TAG)
    for name in ("blocked", "replaced"):
        write_model(folder, name, COUNTED)
    write_model(folder, "impatient", COUNTED, INT_CONFIG + IMPATIENT)
    write_model(folder, "metered", METERED)
    with RunningServer(folder, "--model-control-mode=explicit", "--load-model=*") as server:
        server.wait_until_ready()
        yield server


def rows(*values: int) -> dict[str, Any]:
    """One request of several rows."""
    tensor = {"name": "IN", "datatype": "INT32", "shape": [len(values), 1], "data": list(values)}
    return {"inputs": [tensor]}


def later(server: RunningServer, model: str, value: int) -> threading.Thread:
    thread = threading.Thread(target=server.infer, args=(model, value))
    thread.start()
    return thread


def test_counts_and_times_of_known_traffic_are_exact(server: RunningServer) -> None:
    labels = {"_team": "row", "model": "counted", "version": "1"}
    before = {name: server.value(name, **labels) for name in COUNTERS}
    assert set(before.values()) == {0}
    statuses = [server.infer("counted", value)[0] for value in (1, 20, 1, 2, 2, 3)]
    statuses.append(server.ask("POST", "/v2/models/counted/infer", rows(1, 1, 1, 1))[0])
    assert statuses == [200, 200, 200, 500, 500, 500, 200]
    refused = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}
    assert server.ask("POST", "/v2/models/counted/infer", refused)[0] == 400

    values = {name: server.value(name, **labels) for name in COUNTERS}
    assert [values[name] for name in COUNTERS[:3]] == [4, 7, 7]
    failures = server.metric("nv_inference_request_failure", **labels)
    assert {dict(key)["reason"]: count for key, count in failures.items()} == {
        "REJECTED": 0,
        "CANCELED": 0,
        "BACKEND": 3,
        "OTHER": 0,
    }
    phases = sum(values[name] for name in COUNTERS[4:])
    assert 20_000 <= values["nv_inference_compute_infer_duration_us"] <= phases
    assert phases <= values["nv_inference_request_duration_us"] + len(COUNTERS)

    statistics = server.statistics("counted")
    assert (statistics["inference_count"], statistics["execution_count"]) == (7, 7)
    durations = statistics["inference_stats"]
    counts = {name: duration["count"] for name, duration in durations.items()}
    assert counts == {
        "success": 4,
        "fail": 3,
        "queue": 4,
        "compute_input": 4,
        "compute_infer": 4,
        "compute_output": 4,
        "cache_hit": 0,
        "cache_miss": 0,
    }
    assert durations["success"]["ns"] // 1000 == values["nv_inference_request_duration_us"]
    assert durations["compute_infer"]["ns"] // 1000 == values["nv_inference_compute_infer_duration_us"]
    batches = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in statistics["batch_stats"]}
    assert batches == {1: 6, 4: 1}


@pytest.mark.parametrize(
    ("phase", "totals"),
    [
        ("request", ("nv_inference_request_duration_us",)),
        ("queue", ("nv_inference_queue_duration_us",)),
        ("compute", tuple(f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output"))),
    ],
)
def test_histograms_of_each_phase_agree_with_the_counters(
    server: RunningServer, phase: str, totals: tuple[str, ...]
) -> None:
    labels = {"_team": "row", "model": "counted", "version": "1"}
    server.infer("counted", 1)
    name = f"trireme_{phase}_latency_seconds"
    buckets = [count for _, count in server.metric(f"{name}_bucket", **labels).items()]
    answered = server.value("nv_inference_request_success", **labels)
    assert buckets == sorted(buckets)
    assert buckets[-1] == server.value(f"{name}_count", **labels) == answered > 0
    expected_us = sum(server.value(total, **labels) for total in totals)
    assert server.value(f"{name}_sum", **labels) * 1e6 == pytest.approx(expected_us, abs=len(totals))


def test_pending_requests_are_those_that_wait_for_the_instance(server: RunningServer) -> None:
    def pending() -> float:
        return server.value("nv_inference_pending_request_count", model="blocked", version="1")

    assert pending() == 0
    threads = [later(server, "blocked", 400)]
    server.until(lambda: server.statistics("blocked")["execution_count"] == 0 and pending() == 0)
    threads += [later(server, "blocked", 5) for _ in range(3)]
    server.until(lambda: pending() == 3)
    assert server.value("nv_inference_request_success", model="blocked", version="1") == 0
    for thread in threads:
        thread.join(30)
    assert pending() == 0
    assert server.value("nv_inference_request_success", model="blocked", version="1") == 4


def test_requests_that_wait_too_long_are_counted_as_rejected(server: RunningServer) -> None:
    labels = {"model": "impatient", "version": "1"}
    status, answer, tries = 200, {}, 0
    while status == 200 and tries < 10:  # on a busy machine the first may come second
        tries += 1
        slow = later(server, "impatient", 300)
        server.until(lambda: server.metric("nv_inference_pending_request_count", **labels) == {(): 0.0})
        status, answer = server.infer("impatient", 300)
        slow.join(30)
    assert (status, answer.get("error")) == (503, "Request timeout expired")
    rejected = server.value("nv_inference_request_failure", **labels, reason="REJECTED")
    assert rejected >= 1
    assert rejected + server.value("nv_inference_request_success", **labels) == 2 * tries


def test_a_reload_keeps_the_series_and_an_unload_removes_them(server: RunningServer) -> None:
    worker = {"model": "replaced", "version": "1", "instance": "replaced_0"}
    assert server.infer("replaced", 1)[0] == 200
    old = server.children()
    config = {
        "backend": "python",
        "max_batch_size": 4,
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}],
    }
    body = {"parameters": {"config": json.dumps(config)}}
    assert server.ask("POST", "/v2/repository/models/replaced/load", body)[0] == 200
    server.until(lambda: len(server.children()) == len(old) and server.children() != old)
    assert server.value("trireme_worker_up", **worker) == 1
    assert server.value("nv_inference_request_success", model="replaced", version="1") == 0
    assert server.infer("replaced", 1)[0] == 200
    assert server.value("nv_inference_request_success", model="replaced", version="1") == 1
    assert server.ask("POST", "/v2/repository/models/replaced/unload")[0] == 200
    assert not server.metric("nv_inference_request_success", model="replaced")
    server.until(lambda: 'model="replaced"' not in server.metrics_page())


def test_metrics_of_a_model_are_on_the_page_until_it_is_unloaded(server: RunningServer) -> None:
    labels = {"model": "metered", "kind": "new"}
    assert server.value("tokens_total", **labels) == 0
    server.infer("metered", 3, 4)
    server.until(lambda: server.value("tokens_total", **labels) == 7)
    page = server.metrics_page()
    assert "# HELP tokens_total Tokens made\n# TYPE tokens_total counter\n" in page
    assert {dict(key)["le"]: count for key, count in server.metric("load_seconds_bucket", model="metered").items()} == {
        "0.1": 0,
        "1": 1,
        "+Inf": 1,
    }
    assert server.ask("POST", "/v2/repository/models/metered/unload")[0] == 200
    server.until(lambda: "tokens_total" not in server.metrics_page())
    assert "load_seconds" not in server.metrics_page()


def test_page_has_no_series_twice_and_a_type_for_every_family(server: RunningServer) -> None:
    page = server.metrics_page().splitlines()
    samples = [line.rpartition(" ")[0] for line in page if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    families = [line.split(" ")[2] for line in page if line.startswith("# TYPE ")]
    assert len(families) == len(set(families))
    bases = {sample.partition("{")[0] for sample in samples}
    suffixes = ("", "_bucket", "_sum", "_count")
    assert not [base for base in bases if not any(base.removesuffix(suffix) in families for suffix in suffixes)]


def test_requests_are_the_only_thing_that_counts(server: RunningServer) -> None:
    before = server.metric("nv_inference_request_success")
    server.status("/v2/health/ready")
    server.ask("GET", "/v2/models/counted/config")
    server.ask("POST", "/v2/models/nosuch/infer", int_request(1))
    assert server.metric("nv_inference_request_success") == before
