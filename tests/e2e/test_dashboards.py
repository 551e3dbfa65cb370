"""Dashboards and alerts, held against a real Prometheus that scrapes a real server."""

from __future__ import annotations

import http.server
import importlib.util
import json
import math
import re
import shutil
import socketserver
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from free_ports import free_ports
from meanwhile import serving
from running_server import RunningServer, exchange, int_request, write_model
from system_packages import program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS, PROMTOOL = program("prometheus"), program("promtool")
DASHBOARDS = ("overview", "model", "language-model", "devices")
ADD_ONE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + 1)]) for array in given]
"""
PROMPT = {"model": "scribe", "messages": [{"role": "user", "content": "Tell me a story about ships. " * 4}]}
FIRING = {
    "TriremeDown": ['up{job="trireme", instance="a"}', "0x30"],
    "TriremeModelFails": ['nv_inference_request_failure{model="m"}', "0+60x30"],
    "TriremeModelSlow": ['trireme_queue_latency_seconds_bucket{model="m", le="+Inf"}', "0+60x30"],
    "TriremeQueueGrows": ['nv_inference_pending_request_count{model="m"}', "500x30"],
    "TriremeWorkerDown": ['trireme_worker_up{model="m"}', "0x30"],
    "TriremeWorkerRestarts": ['trireme_worker_restarts_total{model="m"}', "0+1x30"],
    "TriremeHostMemory": ["nv_cpu_memory_used_bytes", "99x30"],
    "TriremeDeviceMemory": ['nv_gpu_memory_used_bytes{gpu_uuid="g"}', "99x30"],
    "TriremeCacheFull": ['vllm:gpu_cache_usage_perc{model="m"}', "0.99x30"],
    "TriremeSlowFirstToken": ['vllm:time_to_first_token_seconds_bucket{model="m", le="+Inf"}', "0+60x30"],
}
BESIDE = {
    "TriremeModelFails": [['nv_inference_request_success{model="m"}', "0+60x30"]],
    "TriremeModelSlow": [['trireme_queue_latency_seconds_bucket{model="m", le="2.5"}', "0+1x30"]],
    "TriremeHostMemory": [["nv_cpu_memory_total_bytes", "100x30"]],
    "TriremeDeviceMemory": [['nv_gpu_memory_total_bytes{gpu_uuid="g"}', "100x30"]],
    "TriremeSlowFirstToken": [['vllm:time_to_first_token_seconds_bucket{model="m", le="7.5"}', "0+1x30"]],
}
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here")


def generator(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"deploy_{name}", DEPLOY / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look for their module there
    specification.loader.exec_module(module)
    return module


def test_files_are_what_the_metric_definitions_give() -> None:
    for name, write in generator("generate").FILES.items():
        assert (DEPLOY / name).read_text(encoding="utf-8") == write(), "run: make dashboards"


@pytest.mark.parametrize(
    "expression",
    ["nv_inference_sucess", "rate(nv_cpu_utilization[1m])", "nv_inference_count", "trireme_request_latency_seconds"],
)
def test_query_on_what_is_not_there_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"metric|is a"):
        generator("generate").check_names(expression)


class PageOfDevices(http.server.BaseHTTPRequestHandler):
    """The metrics of a server that has an accelerator, which this machine may not have."""

    def do_GET(self) -> None:
        body = generator("metric_definitions").example_page()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped a server under load for some seconds."""
    assert PROMETHEUS is not None
    folder = tmp_path_factory.mktemp("dashboards")
    write_model(folder, "numbers", ADD_ONE)
    shutil.copytree(ROOT / "examples/model_repository/scribe", folder / "model_repository/scribe")
    (port,) = free_ports(1)
    devices = socketserver.ThreadingTCPServer(("127.0.0.1", 0), PageOfDevices)
    with RunningServer(folder) as server, serving(devices):
        server.wait_until_listening()
        server.until_ready("scribe")
        (folder / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(DEPLOY / "prometheus/alerts.yml")],
                    "scrape_configs": [
                        target("trireme", server.ports["metrics"]),
                        target("trireme-devices", devices.server_address[1]),
                    ],
                }
            )
        )
        flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [PROMETHEUS, *flags, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
            )
        try:
            address = f"http://127.0.0.1:{port}"
            server.until(lambda: is_up(address), 60)
            load(server, 12)
            yield address
        finally:
            process.terminate()
            process.wait(20)


def target(job: str, port: int) -> dict[str, Any]:
    return {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}


def is_up(address: str) -> bool:
    try:
        return len(ask(address, 'up{job=~"trireme.*"} == 1')) == 2
    except OSError:
        return False


def load(server: RunningServer, seconds: float) -> None:
    end = time.monotonic() + seconds
    connection = server.connect()
    while time.monotonic() < end:
        exchange(connection, "POST", "/v2/models/numbers/infer", int_request(1))
        exchange(connection, "POST", "/v1/chat/completions", {**PROMPT, "max_tokens": 8})
        time.sleep(0.1)


def ask(address: str, expression: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=20) as answer:
        return list(json.load(answer)["data"]["result"])


@needs_prometheus
@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_of_a_dashboard_returns_data(prometheus: str, name: str) -> None:
    dashboard = json.loads((DEPLOY / f"grafana/{name}.json").read_text(encoding="utf-8"))
    empty = []
    for panel in dashboard["panels"]:
        for entry in panel["targets"]:
            expression = entry["expr"].replace("$__rate_interval", "20s").replace("$model", ".*")
            values = [float(found["value"][1]) for found in ask(prometheus, expression)]
            if not any(math.isfinite(value) for value in values):
                empty.append((panel["title"], expression))
    assert empty == []


@needs_prometheus
def test_names_of_series_use_labels_that_are_there(prometheus: str) -> None:
    for name in DASHBOARDS:
        for panel in json.loads((DEPLOY / f"grafana/{name}.json").read_text(encoding="utf-8"))["panels"]:
            for entry in panel["targets"]:
                expression = entry["expr"].replace("$__rate_interval", "20s").replace("$model", ".*")
                labels = {label for found in ask(prometheus, expression) for label in found["metric"]}
                assert set(re.findall(r"\{\{(\w+)\}\}", entry["legendFormat"])) <= labels, expression


@needs_prometheus
def test_prometheus_takes_the_alerts(prometheus: str) -> None:
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=20) as answer:
        (group,) = json.load(answer)["data"]["groups"]
    assert [rule["name"] for rule in group["rules"]] == list(FIRING)
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    assert {rule["lastError"] for rule in group["rules"] if "lastError" in rule} == set()


@needs_promtool
@pytest.mark.parametrize("name", FIRING)
def test_alert_is_raised(tmp_path: Path, name: str) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    (rule,) = [rule for rule in rules if rule["alert"] == name]
    expect_alert(tmp_path, name, [FIRING[name], *BESIDE.get(name, [])], [{"labels": "{}", "value": 1}])
    assert rule["annotations"]["summary"]


@needs_promtool
def test_requests_that_clients_gave_up_raise_no_alert(tmp_path: Path) -> None:
    given_up = ['nv_inference_request_failure{model="m", reason="CANCELED"}', "0+600x30"]
    failed = ['nv_inference_request_failure{model="m", reason="BACKEND"}', "0+1x30"]
    expect_alert(tmp_path, "TriremeModelFails", [given_up, failed, *BESIDE["TriremeModelFails"]], [])


def expect_alert(tmp_path: Path, name: str, series: list[list[str]], samples: list[dict[str, Any]]) -> None:
    """What of the alert fires after 25 minutes of these series."""
    assert PROMTOOL is not None
    case = {
        "rule_files": [str(DEPLOY / "prometheus/alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": labels, "values": values} for labels, values in series],
                "promql_expr_test": [
                    {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})', "eval_time": "25m",
                     "exp_samples": samples}
                ],
            }
        ],
    }  # fmt: skip
    (tmp_path / "case.yml").write_text(json.dumps(case))
    done = subprocess.run([PROMTOOL, "test", "rules", str(tmp_path / "case.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
