"""The list of slow and failed requests, and their waterfalls."""

from __future__ import annotations

from typing import Any

from trireme.console.request_list import request_list
from trireme.core import trace as marks
from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.core.trace import Trace
from trireme.observe.failure_reasons import BACKEND
from trireme.observe.recent.requests import RecentRequests
from trireme.observe.stats import ModelStats


def watched(requests: RecentRequests, name: str) -> ModelStats:
    stats = ModelStats(name, 1)
    stats.watch = requests.watch(stats)
    return stats


def made(arrival_ns: int, queue_ns: int, parent: InferenceRequest | None = None) -> InferenceRequest:
    request = InferenceRequest("m", "", "", {}, lambda response: None)
    request.arrival_ns, request.queue_ns, request.parent = arrival_ns, queue_ns, parent
    return request


def names(entry: dict[str, Any]) -> list[str]:
    return [phase["name"] for phase in entry["phases"]]


def test_phases_follow_each_other_and_add_up_to_the_request() -> None:
    requests = RecentRequests(clock=lambda: 0)
    timing = BatchTiming(1_000, 7_000, 500)
    watched(requests, "m").record_batch([made(10_000, 12_000)], 1, 15_000, 24_000, timing)
    (entry,) = request_list(requests)["slowest"]
    table = entry["waterfall"]
    assert names(table) == ["parse", "queue", "input", "model", "output", "respond"]
    assert [phase["start_us"] for phase in table["phases"]] == [0, 2, 5, 6, 13, 13.5]
    assert sum(phase["duration_us"] for phase in table["phases"]) == table["duration_us"] == 14


def test_phases_of_a_language_model_are_those_of_its_engine() -> None:
    requests = RecentRequests(clock=lambda: 0)
    request = made(10_000, 12_000)
    request.measured = {
        "queue": (1, 1_000),
        "prefill": (1, 2_000),
        "first_token": (1, 3_000),
        "output_token": (4, 8_000),
        "prompt_tokens": (9, 0),
    }
    watched(requests, "m").record_batch([request], 1, 13_000, 26_000, BatchTiming(0, 5, 0))
    (entry,) = request_list(requests)["slowest"]
    table = entry["waterfall"]
    assert names(table) == ["parse", "queue", "engine_queue", "prefill", "decode", "respond"]
    assert [phase["duration_us"] for phase in table["phases"]] == [2, 1, 1, 2, 8, 2]


def test_failure_in_the_model_is_no_time_in_the_queue() -> None:
    requests = RecentRequests(clock=lambda: 0)
    timing = BatchTiming(1_000, 7_000, 0)
    watched(requests, "m").record_failure(made(10_000, 12_000), BACKEND, 23_000, "broke", 15_000, timing)
    (entry,) = request_list(requests)["failed"]
    phases = {phase["name"]: phase["duration_us"] for phase in entry["waterfall"]["phases"]}
    assert phases == {"parse": 2, "queue": 3, "input": 1, "model": 7}


def test_request_that_was_never_run_waited_until_its_end() -> None:
    requests = RecentRequests(clock=lambda: 0)
    watched(requests, "m").record_failure(made(10_000, 12_000), BACKEND, 23_000, "too late")
    (entry,) = request_list(requests)["failed"]
    assert names(entry["waterfall"]) == ["parse", "queue"]


def test_step_that_was_slow_itself_stands_below_its_ensemble() -> None:
    requests = RecentRequests(clock=lambda: 0)
    whole, part = watched(requests, "whole"), watched(requests, "part")
    parent = made(1_000, 1_000)
    part.record_batch([made(3_000, 3_000, parent)], 1, 4_000, 9_000, BatchTiming(0, 5_000, 0))
    part.record_batch([made(20_000, 20_000, parent)], 1, 21_000, 22_000, BatchTiming(0, 1_000, 0))
    whole.record_success([parent], 1_000, 10_000, BatchTiming(0, 9_000, 0))
    entry = next(entry for entry in request_list(requests)["slowest"] if entry["model"] == "whole")
    (step,) = entry["waterfall"]["steps"]
    assert (step["model"], step["start_us"], step["duration_us"]) == ("part", 2, 6)


def test_traced_request_shows_its_trace() -> None:
    requests = RecentRequests(clock=lambda: 0)
    request = made(1_000, 1_000)
    request.trace = trace = Trace(1)
    trace.model_name = "m"
    for name, ns in ((marks.REQUEST_START, 1_000), (marks.QUEUE_START, 2_000), (marks.REQUEST_END, 9_000)):
        trace.mark(name, ns)
    watched(requests, "m").record_batch([request], 1, 2_000, 9_000, BatchTiming(0, 1, 0))
    (entry,) = request_list(requests)["slowest"]
    assert names(entry["waterfall"]) == ["parse", "queue"]


def test_list_of_one_model_leaves_out_the_others() -> None:
    requests = RecentRequests(clock=lambda: 0)
    for name in ("a", "b"):
        watched(requests, name).record_failure(made(0, 0), BACKEND, 5, f"{name} broke")
    assert [entry["message"] for entry in request_list(requests, "b")["failed"]] == ["b broke"]
    assert request_list(requests, "b")["failed_counts"] == {"b": 1}
    assert request_list(requests, "c") == {
        "minutes": 10,
        "is_recording": False,
        "slowest": [],
        "failed": [],
        "failed_counts": {},
        "refused_counts": {},
    }


def test_all_failures_are_counted_though_the_last_are_kept() -> None:
    requests = RecentRequests(clock=lambda: 0)
    stats = watched(requests, "a")
    for number in range(30):
        stats.record_failure(made(0, 0), BACKEND, number, "broke")
    for _ in range(70):
        requests.refuse(made(0, 0), "never")
    listed = request_list(requests)
    assert [entry["reason"] for entry in listed["failed"]].count("REFUSED") == 50
    assert len(listed["failed"]) == 50 + 20
    assert (listed["failed_counts"], listed["refused_counts"]) == ({"a": 30}, {"m": 70})
