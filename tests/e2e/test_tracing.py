"""Traces of a real server: in a file, in a response header, and at an OpenTelemetry collector."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from running_server import INT_CONFIG, RunningServer, int_request, write_model

STEP = """
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
MANY = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(3):
                time.sleep(0.01)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[number]], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
SPANNING = """
import triton_python_backend_utils as pb_utils
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())


class TritonPythonModel:
    def execute(self, requests):
        with trace.get_tracer("model").start_as_current_span("inside") as span:
            context, parent = span.get_span_context(), span.parent
            print(f"SPAN {context.trace_id:032x} {parent.span_id:016x}")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
SPANNING_ASYNC = SPANNING.replace("    def execute", "    async def execute")
PIPELINE_CONFIG = """
platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
ensemble_scheduling {
  step [
    { model_name: "step" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "a" } },
    { model_name: "step" model_version: -1 input_map { key: "IN" value: "a" } output_map { key: "OUT" value: "b" } },
    { model_name: "step" model_version: -1 input_map { key: "IN" value: "b" } output_map { key: "OUT" value: "OUT" } }
  ]
}
"""
CLIENT_CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path, "step", STEP)
    (tmp_path / "model_repository" / "pipeline").mkdir()
    (tmp_path / "model_repository" / "pipeline" / "config.pbtxt").write_text(PIPELINE_CONFIG)
    return tmp_path


def infer(server: RunningServer, model: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    connection = server.connect()
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(int_request(1)), headers or {})
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response


def test_every_second_request_reaches_the_file_with_its_steps(folder: Path) -> None:
    flags = ["level=TIMESTAMPS", "rate=2", "triton,file=trace.json"]
    with RunningServer(folder, *(f"--trace-config={flag}" for flag in flags)) as server:
        server.wait_until_listening()
        for _ in range(4):
            assert infer(server, "pipeline").status == 200
        server.process.terminate()
        assert server.process.wait(30) == 0
    records = json.loads((folder / "trace.json").read_text())
    subjects = [record for record in records if "model_name" in record]
    assert [record["model_name"] for record in subjects] == ["step", "step", "step", "pipeline"] * 2
    whole = subjects[3]["id"]
    assert [record.get("parent_id") for record in subjects[:4]] == [whole] * 3 + [None]
    marks = {
        mark["name"]: mark["ns"] for record in records if record["id"] == whole for mark in record.get("timestamps", ())
    }
    doors = ["HTTP_RECV_START", "REQUEST_START", "QUEUE_START", "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END"]
    assert [marks[door] for door in doors] == sorted(marks[door] for door in doors)


def test_settings_of_a_running_server_turn_tracing_on_and_off(folder: Path) -> None:
    with RunningServer(folder, "--trace-config=triton,file=trace.json", "--trace-config=rate=1") as server:
        server.wait_until_listening()
        infer(server, "step")
        assert server.ask("POST", "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_count": "1"})[0] == 200
        for _ in range(3):
            infer(server, "step")
        assert json.loads(server.ask("GET", "/v2/trace/setting")[2])["trace_count"] == "0"
        server.process.terminate()
        assert server.process.wait(30) == 0
    assert len([record for record in json.loads((folder / "trace.json").read_text()) if "model_name" in record]) == 1


def test_an_explained_request_adds_up_to_its_time(folder: Path) -> None:
    with RunningServer(folder) as server:
        server.wait_until_listening()
        infer(server, "pipeline")
        begin = time.monotonic()
        response = infer(server, "pipeline", {"X-Explain": "1"})
        seen_us = (time.monotonic() - begin) * 1e6
        assert infer(server, "pipeline").getheader("X-Explain") is None
    table = json.loads(response.getheader("X-Explain") or "")
    assert table["model"] == "pipeline"
    assert [step["model"] for step in table["steps"]] == ["step"] * 3
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)
    assert 60_000 < table["duration_us"] <= seen_us
    for step in table["steps"]:
        assert {"queue", "input", "model", "output"} <= {phase["name"] for phase in step["phases"]}
        assert sum(phase["duration_us"] for phase in step["phases"]) == pytest.approx(step["duration_us"], rel=0.05)


def test_failures_and_answers_out_of_the_cache_are_explained_too(folder: Path) -> None:
    write_model(
        folder, "failing", "class TritonPythonModel:\n    def execute(self, requests):\n        raise OSError\n"
    )
    write_model(folder, "kept", STEP, INT_CONFIG + "response_cache { enable: true }\n")
    with RunningServer(folder, "--cache-config=local,size=1048576") as server:
        server.wait_until_listening()
        failed = infer(server, "failing", {"X-Explain": "1"})
        ran, found = (infer(server, "kept", {"X-Explain": "1"}) for _ in range(2))
    assert failed.status == 500
    names = []
    for response in (failed, ran, found):
        table = json.loads(response.getheader("X-Explain") or "")
        names.append([phase["name"] for phase in table["phases"]])
        assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)
    assert "model" in names[0]
    assert "model" in names[1]
    assert names[2] == ["receive", "parse", "cache", "serialise"]


def test_an_explained_grpc_call_has_the_explanation_in_its_parameters(folder: Path) -> None:
    with RunningServer(folder) as server:
        server.wait_until_listening()
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
            given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
            given.set_data_from_numpy(np.array([[1]], np.int32))
            explained = client.infer("pipeline", [given], headers={"x-explain": "1"}).get_response().parameters
            plain = client.infer("pipeline", [given]).get_response().parameters
    assert "x-explain" not in plain
    assert explained.keys() - plain.keys() == {"x-explain"}
    table = json.loads(explained["x-explain"].string_param)
    assert [step["model"] for step in table["steps"]] == ["step"] * 3
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)


def events_of(server: RunningServer, path: str, body: object, headers: dict[str, str]) -> list[tuple[str, Any]]:
    """Name and data of each event of a stream."""
    connection = server.connect()
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        assert (response.status, response.getheader("X-Explain")) == (200, None)
        blocks = [block.split("\n") for block in response.read().decode().strip().split("\n\n")]
    finally:
        connection.close()
    fields = [dict(line.split(": ", 1) for line in block) for block in blocks]
    return [(entry.get("event", ""), json.loads(entry["data"])) for entry in fields]


@pytest.mark.parametrize(("model", "count"), [("step", 1), ("many", 3)])
@pytest.mark.parametrize("is_generate", [True, False], ids=["generate", "infer"])
def test_an_explained_stream_ends_with_the_explanation(folder: Path, model: str, count: int, is_generate: bool) -> None:
    write_model(folder, "many", MANY, INT_CONFIG + "model_transaction_policy { decoupled: true }\n")
    path = f"/v2/models/{model}/{'generate_stream' if is_generate else 'infer'}"
    body = {"IN": [1]} if is_generate else int_request(1)
    events_wanted = {"Accept": "text/event-stream"}
    with RunningServer(folder) as server:
        server.wait_until_listening()
        plain = events_of(server, path, body, events_wanted)
        explained = events_of(server, path, body, {**events_wanted, "X-Explain": "1"})
    assert [name for name, _ in explained] == [""] * len(plain) + ["explain"]
    assert [data for _, data in explained[:-1]] == [data for _, data in plain]
    table = explained[-1][1]
    assert (table["model"], table["batch_size"]) == (model, 1)
    phases = [phase["name"] for phase in table["phases"]]
    middle = ["first_response", "stream"] if count > 1 else ["input", "model", "output", "respond"]
    assert phases == ["receive", "parse", "queue", *middle, "serialise"]
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)


class Collector(ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: queue.Queue[Any] = queue.Queue()
        super().__init__(("127.0.0.1", 0), _Door)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _Door(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        message = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.server.spans.put(span)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.shutdown()
    collector.server_close()


def opentelemetry_flags(url: str, rate: int = 1) -> list[str]:
    settings = ["mode=opentelemetry", "level=TIMESTAMPS", f"rate={rate}", f"opentelemetry,url={url}"]
    return [f"--trace-config={setting}" for setting in [*settings, "opentelemetry,bsp_schedule_delay=50"]]


def test_a_collector_gets_a_span_for_the_request_its_queue_its_execution_and_every_step(
    folder: Path, collector: Collector
) -> None:
    write_model(folder, "spanning", SPANNING)
    with RunningServer(folder, *opentelemetry_flags(collector.url)) as server:
        server.wait_until_listening()
        assert infer(server, "pipeline", {"traceparent": CLIENT_CONTEXT}).status == 200
        spans = [collector.spans.get(timeout=10) for _ in range(10)]
        assert infer(server, "spanning", {"traceparent": CLIENT_CONTEXT}).status == 200
        of_model = [collector.spans.get(timeout=10) for _ in range(3)]
        inside = next(line for line in server.log.splitlines() if "SPAN " in line).split("SPAN ")[1].split()
    assert sorted(span.name for span in spans) == ["InferRequest"] + ["compute"] * 3 + ["queue"] * 3 + ["step"] * 3
    assert {span.trace_id.hex() for span in spans} == {"0af7651916cd43dd8448eb211c80319c"}
    root = next(span for span in spans if span.name == "InferRequest")
    assert root.parent_span_id.hex() == "b7ad6b7169203331"
    steps = [span for span in spans if span.name == "step"]
    assert {span.parent_span_id for span in steps} == {root.span_id}
    for span in spans:
        assert (
            root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano
        )
        if span.name in ("queue", "compute"):
            assert span.parent_span_id in {step.span_id for step in steps}
    model_span = next(span for span in of_model if span.name == "InferRequest")
    assert inside == ["0af7651916cd43dd8448eb211c80319c", model_span.span_id.hex()]


def test_a_client_that_is_traced_is_followed_whatever_the_rate(folder: Path, collector: Collector) -> None:
    with RunningServer(folder, *opentelemetry_flags(collector.url, rate=1_000_000)) as server:
        server.wait_until_listening()
        for headers in ({}, {"traceparent": "no context"}, {"traceparent": CLIENT_CONTEXT}):
            assert infer(server, "step", headers).status == 200
        spans = [collector.spans.get(timeout=10) for _ in range(3)]
        with pytest.raises(queue.Empty):
            collector.spans.get(timeout=0.5)
    assert {span.trace_id.hex() for span in spans} == {"0af7651916cd43dd8448eb211c80319c"}


def test_spans_of_an_async_model_join_too(folder: Path, collector: Collector) -> None:
    write_model(folder, "spanning", SPANNING_ASYNC)
    with RunningServer(folder, *opentelemetry_flags(collector.url)) as server:
        server.wait_until_listening()
        assert infer(server, "spanning", {"traceparent": CLIENT_CONTEXT}).status == 200
        spans = [collector.spans.get(timeout=10) for _ in range(3)]
        inside = next(line for line in server.log.splitlines() if "SPAN " in line).split("SPAN ")[1].split()
    root = next(span for span in spans if span.name == "InferRequest")
    assert inside == ["0af7651916cd43dd8448eb211c80319c", root.span_id.hex()]


def test_a_collector_that_is_away_costs_a_warning_and_no_request(folder: Path) -> None:
    with RunningServer(folder, *opentelemetry_flags("http://127.0.0.1:9/v1/traces")) as server:
        server.wait_until_listening()
        for _ in range(3):
            assert infer(server, "step").status == 200
        deadline = time.monotonic() + 20
        while "does not take spans" not in server.log and time.monotonic() < deadline:
            time.sleep(0.05)
        assert infer(server, "step").status == 200
        server.process.terminate()
        assert server.process.wait(30) == 0
        assert server.log.count("does not take spans") == 1
        assert "Traceback" not in server.log
