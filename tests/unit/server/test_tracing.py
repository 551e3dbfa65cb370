"""Which requests are traced, what their traces hold, and where they go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from trireme.config.model_config import ModelConfig
from trireme.config.options.trace import TraceSettings
from trireme.core.errors import CancelledError, InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.threads.pools import create_threads
from trireme.observe.files import trace_file
from trireme.observe.stats import ModelStats
from trireme.proto import model_config_pb2
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.server.response_stages import ResponseStages
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing


class Clock:
    def __init__(self) -> None:
        self.ns = 1000

    def __call__(self) -> int:
        self.ns += 10
        return self.ns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.fixture
def start(path: Path) -> Callable[..., tuple[Tracing, TraceSettingsStore]]:
    def make(**settings: object) -> tuple[Tracing, TraceSettingsStore]:
        values: dict[str, object] = {"level": ("TIMESTAMPS",), "rate": 1, "file": str(path), **settings}
        store = TraceSettingsStore(TraceSettings(**values))  # type: ignore[arg-type]
        return Tracing(store, Clock()), store

    return make


def begin(tracing: Tracing, request: InferenceRequest) -> None:
    """What inference does with a request that may be traced before it is enqueued."""
    tracing.begin(request.model_name, request)
    if request.trace is not None:
        config = ModelConfig.from_message(model_config_pb2.ModelConfig(name=request.model_name))
        scheduler: Any = None
        stats = ModelStats(request.model_name, 1)
        model = Model(ModelId("", request.model_name), 1, config, scheduler, stats)
        request.respond = ResponseStages(model, request, tracing, (), create_threads("test"))


def request_of(tracing: Tracing, model: str = "m", parent: InferenceRequest | None = None) -> InferenceRequest:
    tensor = Tensor("IN", "FP32", (1,), bytes(4))
    request = InferenceRequest(model, "", "rq", {"IN": tensor}, lambda response: None)
    request.served_version, request.arrival_ns, request.parent = "1", 900, parent
    if parent is None:
        request.trace = tracing.sample(model)
    begin(tracing, request)
    return request


def test_the_end_waits_for_traces_that_a_thread_writes(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "INLINE_BYTES", 0)
    write_all = trace_file._write_all
    is_asked = threading.Event()

    def write(file: FileIO, opening: bytes, traces: Sequence[bytes]) -> None:
        is_asked.wait(20)
        write_all(file, opening, traces)

    monkeypatch.setattr(trace_file, "_write_all", write)
    tracing, _ = start()
    request_of(tracing).respond(InferenceResponse([]))
    threading.Timer(0.2, is_asked.set).start()
    tracing.close()
    assert json.loads(path.read_bytes())[0]["request_id"] == "rq"


def test_nothing_is_traced_while_the_level_is_off(start: Callable[..., tuple[Tracing, TraceSettingsStore]]) -> None:
    tracing, store = start(level=("OFF",))
    assert not tracing.is_on
    store.update("m", {"trace_level": ["TIMESTAMPS"]})
    assert tracing.is_on
    assert tracing.sample("other") is None
    assert tracing.sample("m") is not None


def test_every_rate_th_request_is_traced_until_the_count_is_used_up(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]],
) -> None:
    tracing, store = start(rate=3, count=2)
    assert [tracing.sample("m") is not None for _ in range(12)] == [False, False, True] * 2 + [False] * 6
    assert store.of("m")["trace_count"] == "0"
    store.update("", {"trace_count": "-1", "trace_rate": "1"})
    assert all(tracing.sample("m") for _ in range(5))
    assert store.of("m")["trace_count"] == "-1"


def write_traces(tracing: Tracing, models: str) -> None:
    """One request after the other, each named for its model and its place."""
    for number, model in enumerate(models, 1):
        request = InferenceRequest(model, "", f"{model}{number}", {}, lambda response: None)
        request.served_version, request.arrival_ns = "1", 900
        request.trace = tracing.sample(model)
        begin(tracing, request)
        request.respond(InferenceResponse([]))


def written(path: Path) -> dict[str, list[str]]:
    """The requests in each file."""
    return {
        each.name.removeprefix(path.name): [
            record["request_id"] for record in json.loads(each.read_text()) if "model_name" in record
        ]
        for each in sorted(path.parent.iterdir())
    }


@pytest.mark.parametrize(
    ("common", "own", "models", "files"),
    [  # as Triton writes them
        ({}, {"log_frequency": "2"}, "ababa", {"": ["b2", "b4"], ".0": ["a1", "a3"], ".1": ["a5"]}),
        ({"log_frequency": 2}, {"log_frequency": "0"}, "aabba", {"": ["a1", "a2", "a5"], ".0": ["b3", "b4"]}),
        ({"log_frequency": 2}, {"trace_rate": "1"}, "abab", {".0": ["a1", "a3"], ".1": ["b2", "b4"]}),
        (
            {"log_frequency": 2},
            {"log_frequency": "3"},
            "abababba",
            {".0": ["b2", "b4"], ".1": ["a1", "a3", "a5"], ".2": ["b6", "b7"], ".3": ["a8"]},
        ),
        ({}, {"trace_count": "1"}, "abab", {"": ["b2", "b4"], ".0": ["a1"]}),
        ({"count": 2}, {"trace_rate": "1"}, "aaabb", {".0": ["a1", "a2"], ".1": ["b4", "b5"]}),
        ({}, {"trace_count": "2", "trace_rate": "2"}, "aaaabaa", {"": ["a2", "a4", "b5"]}),
        (
            {"log_frequency": 2},
            {"trace_count": "3"},
            "abaaab",
            {".0": ["a1", "a3"], ".1": ["a4"], ".2": ["b2", "b6"]},
        ),
        ({}, {"trace_rate": "1"}, "abab", {"": ["a1", "a3", "b2", "b4"]}),
    ],
)
def test_a_model_with_settings_of_its_own_is_counted_and_written_apart(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]],
    path: Path,
    common: dict[str, object],
    own: dict[str, str],
    models: str,
    files: dict[str, list[str]],
) -> None:
    tracing, store = start(**common)
    store.update("a", own)
    write_traces(tracing, models)
    tracing.close()
    assert written(path) == files


def test_traces_are_written_when_the_settings_they_were_taken_under_are_replaced(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path
) -> None:
    tracing, store = start(log_frequency=3)
    store.update("a", {"trace_rate": "1"})
    write_traces(tracing, "ab")
    store.update("b", {"log_frequency": None})
    assert written(path) == {}, "nothing was changed by that"
    store.update("", {"log_frequency": "2"})
    assert written(path) == {".0": ["b2"], ".1": ["a1"]}
    write_traces(tracing, "aab")
    store.update("a", {"trace_rate": None})
    tracing.close()
    assert written(path) == {".0": ["b2"], ".1": ["a1"], ".2": ["a1", "a2"], ".3": ["b3"]}


def test_a_trace_under_way_belongs_to_the_settings_it_was_begun_under(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path
) -> None:
    tracing, store = start(log_frequency=2)
    request = request_of(tracing)
    store.update("", {"log_frequency": "0"})
    write_traces(tracing, "a")
    request.respond(InferenceResponse([]))
    assert written(path) == {".0": ["rq"]}
    tracing.close()
    assert written(path) == {"": ["a1"], ".0": ["rq"]}


def test_only_a_count_that_was_set_stays_used_when_other_settings_change(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]],
) -> None:
    tracing, store = start(count=5)
    store.update("a", {"trace_count": "3"})
    write_traces(tracing, "aabb")
    assert (store.of("")["trace_count"], store.of("a")["trace_count"]) == ("3", "1")
    store.update("c", {"trace_rate": "1"})
    assert (store.of("")["trace_count"], store.of("c")["trace_count"]) == ("3", "3")
    store.update("", {"log_frequency": "7"})
    assert (store.of("")["trace_count"], store.of("a")["trace_count"]) == ("5", "1")


def test_a_trace_holds_the_doors_in_order_and_goes_to_the_file(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path
) -> None:
    tracing, _ = start()
    request = request_of(tracing)
    assert request.trace is not None
    request.trace.ran(2000, 100, 500, 2700, 4)
    request.respond(InferenceResponse([]))
    tracing.close()
    records = json.loads(path.read_text())
    assert records[0] == {"id": 1, "model_name": "m", "model_version": 1, "request_id": "rq"}
    marks = [(mark["name"], mark["ns"]) for record in records[1:] for mark in record["timestamps"]]
    assert [name for name, _ in marks] == [
        "REQUEST_START",
        "QUEUE_START",
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
        "INFER_RESPONSE_COMPLETE",
        "REQUEST_END",
    ]
    assert dict(marks)["COMPUTE_OUTPUT_START"] == 2600


def test_requests_made_by_a_traced_one_are_its_children(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path
) -> None:
    tracing, _ = start()
    whole = request_of(tracing, "pipeline")
    step = request_of(tracing, "step", whole)
    step.respond(InferenceResponse([]))
    assert not path.exists()
    whole.respond(InferenceResponse([]))
    tracing.close()
    subjects = [record for record in json.loads(path.read_text()) if "model_name" in record]
    assert [(record["model_name"], record.get("parent_id")) for record in subjects] == [("step", 1), ("pipeline", None)]


def test_requests_of_an_untraced_one_are_not_traced(start: Callable[..., tuple[Tracing, TraceSettingsStore]]) -> None:
    tracing, _ = start(rate=2)
    whole = request_of(tracing, "pipeline")
    assert whole.trace is None
    assert request_of(tracing, "step", whole).trace is None


def test_tensors_are_kept_where_the_level_asks_for_them(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path
) -> None:
    tracing, _ = start(level=("TENSORS",))
    request = request_of(tracing)
    request.respond(InferenceResponse([Tensor("OUT", "INT32", (1,), b"\7\0\0\0")]))
    tracing.close()
    _, given, made = json.loads(path.read_text())
    assert (given["activity"], made["activity"]) == ("TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT")
    assert made["tensor"] == {"name": "OUT", "data": "7", "shape": "1", "dtype": "INT32"}


def test_a_stream_is_one_trace_with_a_mark_for_each_response(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]], path: Path
) -> None:
    tracing, _ = start()
    request = request_of(tracing)
    for is_final in (False, False, True):
        request.respond(InferenceResponse([], is_final=is_final, is_empty=is_final))
    tracing.close()
    text = path.read_text()
    assert text.count("INFER_RESPONSE_COMPLETE") == 2
    assert text.count("REQUEST_END") == 1


def test_a_failed_request_and_its_failed_step_keep_what_they_failed_of(
    start: Callable[..., tuple[Tracing, TraceSettingsStore]],
) -> None:
    tracing, _ = start()
    whole = request_of(tracing, "pipeline")
    good, bad, dropped = (request_of(tracing, name, whole) for name in ("good", "bad", "dropped"))
    good.respond(InferenceResponse([]))
    bad.respond(InferenceResponse.of_error(InternalError("boom")))
    dropped.respond(InferenceResponse.of_error(CancelledError("")))
    whole.respond(InferenceResponse.of_error(InternalError("in ensemble 'pipeline', boom")))
    assert whole.trace is not None
    assert whole.trace.error == "in ensemble 'pipeline', boom"
    assert [child.error for child in whole.trace.children] == [None, "boom", "Cancelled"]
