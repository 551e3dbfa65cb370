"""Traces of a real server at an OpenTelemetry collector."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import INT_CONFIG, RunningServer, write_ensemble, write_model
from span_collector import Collector, opentelemetry_flags
from traced_models import infer, write_traced_models

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
# Sends all but its first response after `execute` has returned.
LATE = """
import threading, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            self.send(sender, 0)
            threading.Thread(target=self.finish, args=(sender,)).start()

    def finish(self, sender):
        for number in (1, 2):
            time.sleep(0.02)
            self.send(sender, number)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def send(self, sender, number):
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[number]], np.int32))]))
"""
FAILING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no luck")) for _ in requests]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
EVENTS = {"Accept": "text/event-stream"}
ERROR = 2  # OpenTelemetry's number
CLIENT_CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_traced_models(tmp_path)
    return tmp_path


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.shutdown()
    collector.server_close()


def test_a_collector_gets_a_span_for_the_request_its_queue_its_execution_and_every_step(
    folder: Path, collector: Collector
) -> None:
    write_model(folder, "spanning", SPANNING)
    with RunningServer(folder, *opentelemetry_flags(collector.url)) as server:
        server.wait_until_listening()
        assert infer(server, "pipeline", {"traceparent": CLIENT_CONTEXT}).status == 200
        spans = collector.take(10)
        assert infer(server, "spanning", {"traceparent": CLIENT_CONTEXT}).status == 200
        of_model = collector.take(3)
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


def test_the_execution_of_a_stream_is_a_span_that_lasts_to_its_end(folder: Path, collector: Collector) -> None:
    write_model(folder, "late", LATE, INT_CONFIG + DECOUPLED)
    write_ensemble(folder, "streaming", [("many", "IN", "OUT")], is_decoupled=True)
    found = {}
    with RunningServer(folder, *opentelemetry_flags(collector.url)) as server:
        server.wait_until_listening()
        for model, count in (("many", 3), ("late", 3), ("streaming", 4)):
            assert infer(server, model, EVENTS).status == 200
            found[model] = {span.name: span for span in collector.take(count)}
    assert found["many"].keys() == found["late"].keys() == {"InferRequest", "queue", "compute"}
    assert found["streaming"].keys() == {"InferRequest", "many", "queue", "compute"}
    for model, least_ms, whole_name in (
        ("many", 30, "InferRequest"),
        ("late", 40, "InferRequest"),
        ("streaming", 30, "many"),
    ):
        compute, whole = found[model]["compute"], found[model][whole_name]
        assert compute.parent_span_id == whole.span_id
        assert compute.end_time_unix_nano - compute.start_time_unix_nano >= least_ms * 1e6
        assert found[model]["queue"].end_time_unix_nano == compute.start_time_unix_nano
        assert compute.end_time_unix_nano <= whole.end_time_unix_nano


def test_the_span_of_what_failed_says_so(folder: Path, collector: Collector) -> None:
    write_model(folder, "failing", FAILING)
    write_ensemble(folder, "inner", [("step", "IN", "good"), ("failing", "good", "OUT")])
    write_ensemble(folder, "outer", [("inner", "IN", "OUT")])
    with RunningServer(folder, *opentelemetry_flags(collector.url)) as server:
        server.wait_until_listening()
        assert infer(server, "outer").status == 500
        nested = {span.name: span.status for span in collector.take(8)}
        assert infer(server, "step").status == 200
        succeeded = {span.name: span.status.code for span in collector.take(3)}
        body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
        status, _, refusal = server.ask("POST", "/v2/models/step/infer", body)
        [refused] = collector.take(1)
    assert {name: status.message for name, status in nested.items() if status.code == ERROR} == {
        "InferRequest": "in ensemble 'outer', in ensemble 'inner', no luck",
        "inner": "in ensemble 'inner', no luck",
        "failing": "no luck",
    }
    assert nested["step"].code == 0
    assert set(succeeded.values()) == {0}
    assert (status, refused.name, refused.status.code) == (400, "InferRequest", ERROR)
    assert refused.status.message == json.loads(refusal)["error"]


def test_a_client_that_is_traced_is_followed_whatever_the_rate(folder: Path, collector: Collector) -> None:
    with RunningServer(folder, *opentelemetry_flags(collector.url, rate=1_000_000)) as server:
        server.wait_until_listening()
        for headers in ({}, {"traceparent": "no context"}, {"traceparent": CLIENT_CONTEXT}):
            assert infer(server, "step", headers).status == 200
        spans = collector.take(3)
        with pytest.raises(queue.Empty):
            collector.spans.get(timeout=0.5)
    assert {span.trace_id.hex() for span in spans} == {"0af7651916cd43dd8448eb211c80319c"}


def test_spans_of_an_async_model_join_too(folder: Path, collector: Collector) -> None:
    write_model(folder, "spanning", SPANNING_ASYNC)
    with RunningServer(folder, *opentelemetry_flags(collector.url)) as server:
        server.wait_until_listening()
        assert infer(server, "spanning", {"traceparent": CLIENT_CONTEXT}).status == 200
        spans = collector.take(3)
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
