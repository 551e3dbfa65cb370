"""Trace files and waterfalls made of traces that were filled by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trireme.core import trace as marks
from trireme.core.tensor import Tensor
from trireme.core.trace import Trace
from trireme.observe.files.trace_file import TraceFile, TraceLog
from trireme.server.trace.waterfall import waterfall


def traced(trace_id: int = 1, *, wants_tensors: bool = False) -> Trace:
    trace = Trace(trace_id, wants_tensors=wants_tensors)
    trace.model_name, trace.model_version, trace.request_id = "pipeline", 1, "rq"
    return trace


def pass_through(trace: Trace, start_ns: int) -> int:
    names = (marks.REQUEST_START, marks.QUEUE_START, marks.COMPUTE_START, marks.COMPUTE_INPUT_END)
    names += (marks.COMPUTE_OUTPUT_START, marks.COMPUTE_END, marks.REQUEST_END)
    for index, name in enumerate(names):
        trace.mark(name, start_ns + index * 10_000)
    return start_ns + len(names) * 10_000


def test_a_file_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    log = TraceLog(TraceFile(str(path)))
    trace = traced()
    trace.mark(marks.REQUEST_START, 5)
    log.add(trace)
    assert not path.exists()
    log.close()
    assert json.loads(path.read_text()) == [
        {"id": 1, "model_name": "pipeline", "model_version": 1, "request_id": "rq"},
        {"id": 1, "timestamps": [{"name": "REQUEST_START", "ns": 5}]},
    ]


def test_children_come_first_and_name_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    log = TraceLog(TraceFile(str(path)))
    trace = traced(2)
    for number, name in ((3, "step1"), (4, "step2")):
        child = trace.begin_child(number)
        child.model_name, child.model_version = name, 1
    log.add(trace)
    log.close()
    subjects = [(record["id"], record.get("parent_id")) for record in json.loads(path.read_text())]
    assert subjects == [(4, 2), (3, 2), (2, None)]


def written(folder: Path) -> dict[str, list[int]]:
    """The traces in each file, by their numbers."""
    return {each.name: [record["id"] for record in json.loads(each.read_text())] for each in sorted(folder.iterdir())}


def test_a_log_frequency_makes_numbered_files(tmp_path: Path) -> None:
    log = TraceLog(TraceFile(str(tmp_path / "trace.json")), log_frequency=2)
    for number in range(1, 6):
        log.add(traced(number))
    log.close()
    assert written(tmp_path) == {"trace.json.0": [1, 2], "trace.json.1": [3, 4], "trace.json.2": [5]}


def test_the_last_of_a_limited_number_is_written_at_once_to_a_numbered_file(tmp_path: Path) -> None:
    log = TraceLog(TraceFile(str(tmp_path / "trace.json")))
    log.add(traced(1))
    log.add(traced(2), is_last=True)
    assert written(tmp_path) == {"trace.json.0": [1, 2]}


def test_logs_of_one_file_number_their_files_together_and_leave_it_a_whole_list(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("what an earlier server left, much longer than what comes")
    file = TraceFile(str(tmp_path / "trace.json"))
    logs = [TraceLog(file), TraceLog(file), TraceLog(file, 2), TraceLog(file, 3)]
    for number, log in enumerate(logs * 2):
        log.add(traced(number))
    for log in logs:
        log.close()
        assert all(ids for ids in written(tmp_path).values())
    assert written(tmp_path) == {"trace.json": [0, 4, 1, 5], "trace.json.0": [2, 6], "trace.json.1": [3, 7]}


def test_a_trace_that_ends_after_its_settings_is_written_as_it_comes(tmp_path: Path) -> None:
    file = TraceFile(str(tmp_path / "trace.json"))
    for frequency in (0, 5):
        log = TraceLog(file, frequency)
        log.close()
        log.add(traced(1))
        log.add(traced(2))
    assert written(tmp_path) == {"trace.json": [1, 2], "trace.json.0": [1], "trace.json.1": [2]}


def test_tensors_are_listed_as_text(tmp_path: Path) -> None:
    trace = traced(wants_tensors=True)
    numbers = Tensor.from_numpy("IN", np.array([[1.5, 2.0]], np.float32))
    words = Tensor.from_numpy("OUT", np.array([b"a", b"b"], dtype=object))
    trace.keep(marks.TENSOR_QUEUE_INPUT, [numbers])
    trace.keep(marks.TENSOR_BACKEND_OUTPUT, [words])
    log = TraceLog(TraceFile(str(tmp_path / "t")))
    log.add(trace)
    log.close()
    _, given, made = json.loads((tmp_path / "t").read_text())
    assert given["activity"] == "TENSOR_QUEUE_INPUT"
    assert given["tensor"] == {"name": "IN", "data": "1.5,2", "shape": "1,2", "dtype": "FP32"}
    assert made["tensor"] == {"name": "OUT", "data": '"a","b"', "shape": "2", "dtype": "BYTES"}


def test_what_is_not_wanted_is_not_kept() -> None:
    trace = Trace(1, wants_timestamps=False, wants_tensors=False)
    trace.mark(marks.REQUEST_START, 1)
    trace.keep(marks.TENSOR_QUEUE_INPUT, [Tensor("IN", "FP32", (1,), bytes(4))])
    assert trace.marks == []
    assert trace.tensors == []


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = TraceLog(TraceFile(str(tmp_path / "missing" / "trace.json")), log_frequency=1)
    for number in (1, 2):
        log.add(traced(number))
    log.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"failed to write the trace file '{tmp_path}/missing/trace.json.0': No such file or directory; "
        "traces are dropped until it can be written"
    ]


def test_the_phases_of_a_request_add_up_to_its_time() -> None:
    trace = traced()
    trace.mark(marks.HTTP_RECV_START, 1_000_000)
    trace.mark(marks.HTTP_RECV_END, 1_010_000)
    end_ns = pass_through(trace, 1_030_000)
    trace.mark(marks.HTTP_SEND_START, end_ns)
    trace.batch_size = 4
    table = waterfall(trace)
    assert [phase["name"] for phase in table["phases"]] == [
        *("receive", "parse", "queue", "input", "model", "output", "respond", "serialise")
    ]
    assert table["duration_us"] == 100.0
    assert table["batch_size"] == 4
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(100.0)


def test_what_a_model_counts_stands_beside_what_it_measures() -> None:
    trace = traced()
    pass_through(trace, 1_000)
    trace.durations = {"output_token": (4, 8_000), "draft_tokens": (9, 0), "accepted_tokens": (0, 0), "queue": (0, 0)}
    assert waterfall(trace)["engine"] == {"output_token_us": 2.0, "draft_tokens": 9, "accepted_tokens": 0}


def test_answer_that_a_language_model_sends_whole_took_until_its_first_response() -> None:
    trace = traced()
    for index, name in enumerate((marks.REQUEST_START, marks.QUEUE_START, marks.COMPUTE_START, marks.COMPUTE_END)):
        trace.mark(name, index * 10_000)  # the engine has taken it, and answers later
    trace.mark(marks.INFER_RESPONSE_COMPLETE, 900_000)
    trace.mark(marks.REQUEST_END, 901_000)
    trace.durations = {"prefill": (1, 100_000), "output_token": (7, 700_000)}
    phases = [(phase["name"], phase["duration_us"]) for phase in waterfall(trace)["phases"]]
    assert phases == [("parse", 10.0), ("queue", 10.0), ("first_response", 880.0), ("stream", 1.0)]


def test_steps_stand_in_their_request_with_times_of_one_clock() -> None:
    trace = traced()
    trace.mark(marks.REQUEST_START, 1_000)
    trace.mark(marks.QUEUE_START, 6_000)
    pass_through(trace.begin_child(2), 11_000)
    trace.mark(marks.REQUEST_END, 91_000)
    table = waterfall(trace)
    assert [(phase["name"], phase["duration_us"]) for phase in table["phases"]] == [("parse", 5.0), ("steps", 85.0)]
    [step] = table["steps"]
    assert step["start_us"] == 10.0
    assert step["phases"][1] == {"name": "queue", "start_us": 20.0, "duration_us": 10.0}
