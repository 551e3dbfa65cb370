"""The slowest and the failed requests of the last minutes."""

from __future__ import annotations

import marshal
import sys
import weakref

import pytest

from trireme.core import trace as marks
from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.core.trace import Trace
from trireme.observe.failure_reasons import BACKEND, CANCELED
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.recent.excerpts import RecentExcerpts
from trireme.observe.recent.record import NewRecords
from trireme.observe.recent.requests import NEVER_NS, RecentRequests, RequestWatch
from trireme.observe.stats import ModelStats

MINUTE_NS = 60_000_000_000
TIMING = BatchTiming(10, 200, 30)


class Watched:
    """A model whose requests are watched, at a time that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.requests = RecentRequests(clock=lambda: self.now_ns)
        self.metrics = MetricsRegistry(MetricsOptions())
        self.metrics.requests = self.requests
        self.stats = ModelStats("m", 1)
        self.metrics.add_model(self.stats, {}, 0.0)

    def answer(self, latency_ns: int, trace: Trace | None = None) -> None:
        request = made(self.now_ns)
        request.trace = trace
        self.stats.record_batch([request], 1, self.now_ns + 5, self.now_ns + latency_ns, TIMING)

    def slowest_ns(self) -> list[int]:
        return [record.total_ns for record in self.requests.records()[0]]


def made(arrival_ns: int) -> InferenceRequest:
    request = InferenceRequest("m", "", "mine", {}, lambda response: None)
    request.arrival_ns = request.queue_ns = arrival_ns
    return request


def test_slowest_of_a_minute_are_kept_and_only_slower_ones_are_looked_at() -> None:
    watched = Watched()
    for latency in range(100, 1100, 100):
        watched.answer(latency)
    assert watched.slowest_ns() == [1000, 900, 800, 700, 600]
    assert watched.stats.slow_ns == 601
    watched.answer(600)
    assert watched.slowest_ns() == [1000, 900, 800, 700, 600]


def test_every_minute_has_its_own_slowest() -> None:
    watched = Watched()
    for _ in range(6):
        watched.answer(1000)
    watched.now_ns += MINUTE_NS
    watched.requests.pass_time()
    watched.answer(10)
    assert watched.slowest_ns() == [1000] * 5 + [10]


def test_all_is_forgotten_after_ten_minutes() -> None:
    watched = Watched()
    watched.answer(1000)
    watched.stats.record_failure(made(0), BACKEND, 500, "no")
    watched.requests.refuse(made(0), "never")
    for _ in range(12):
        watched.now_ns += MINUTE_NS
        watched.requests.pass_time()
    assert watched.requests.records() == ([], [])
    assert watched.requests.counts() == ({}, {})


def test_failures_of_every_minute_are_counted_until_they_are_forgotten() -> None:
    watched = Watched()
    for _ in range(3):
        for number in range(30):
            watched.stats.record_failure(made(watched.now_ns), BACKEND, watched.now_ns + number, "no")
            watched.requests.refuse(made(watched.now_ns), "never")
        watched.now_ns += MINUTE_NS
        watched.requests.pass_time()
    assert watched.requests.counts() == ({"m": 90}, {"m": 90})
    watched.now_ns += 8 * MINUTE_NS
    for _ in range(8):
        watched.requests.pass_time()
        watched.now_ns += MINUTE_NS
    assert watched.requests.counts() == ({"m": 60}, {"m": 60})


def test_failure_has_its_message_and_a_refusal_too() -> None:
    watched = Watched()
    watched.stats.record_failure(made(100), BACKEND, 400, "it broke")
    watched.now_ns = 900
    watched.requests.refuse(made(850), "no such input")
    refused, failed = watched.requests.records()[1]
    assert (failed.reason, failed.message, failed.total_ns, failed.request_id) == (BACKEND, "it broke", 300, "mine")
    assert (refused.reason, refused.message, refused.total_ns) == ("REFUSED", "no such input", 50)


def test_request_that_its_client_gave_up_is_not_a_failure_of_the_model() -> None:
    watched = Watched()
    request = made(100)
    request.cancel()
    watched.stats.record_failure(request, BACKEND, 400, "the request was ended: cancelled")
    (failed,) = watched.requests.records()[1]
    assert failed.reason == CANCELED
    assert watched.stats.fail_counts[BACKEND] == 1  # the metric counts as before


def test_slow_request_that_its_client_gave_up_is_cancelled_and_not_among_the_slowest() -> None:
    watched = Watched()
    for latency in range(100, 700, 100):
        watched.answer(latency)
    request = made(0)
    request.cancel()
    watched.stats.record_batch([request], 1, 5, 900, TIMING)
    slowest, (given_up,) = watched.requests.records()
    assert [record.total_ns for record in slowest] == [600, 500, 400, 300, 200]
    assert (given_up.reason, given_up.total_ns, given_up.timing) == (CANCELED, 900, TIMING)
    assert watched.stats.slow_ns == 201
    assert (watched.stats.success_count, watched.stats.fail_count) == (7, 0)


def traced(responses: int, steps: int, is_over: bool = True) -> Trace:
    trace = Trace(1)
    trace.model_name = "m"
    for name in (marks.REQUEST_START, marks.QUEUE_START, marks.COMPUTE_START):
        trace.mark(name, 1_000)
    for number in range(responses):
        trace.mark(marks.INFER_RESPONSE_COMPLETE, 2_000 + number)
    for number in range(steps):
        step = trace.begin_child(number)
        step.mark(marks.REQUEST_START, 1_500)
        step.mark(marks.REQUEST_END, 1_600)
    if is_over:
        trace.mark(marks.REQUEST_END, 3_000 + responses)
    return trace


def kept_traces(watched: Watched) -> list[tuple[Trace, int]]:
    return [record.trace.shown() for record in watched.requests.records()[0] if record.trace is not None]


def test_of_a_long_trace_a_bounded_part_is_kept_that_still_tells_the_times() -> None:
    watched = Watched()
    watched.answer(100, traced(responses=50_000, steps=1_000))
    ((kept, left_out),) = kept_traces(watched)
    assert (len(kept.children), left_out, len(kept.marks)) == (23, 977, 16)
    assert all(step.parent is None for step in kept.children)
    assert kept.first(marks.INFER_RESPONSE_COMPLETE) == 2_000
    assert kept.first(marks.REQUEST_END) == 53_000


@pytest.mark.parametrize("way", ["another request", "time"])
def test_trace_of_a_request_that_is_over_is_let_go_though_nobody_looks(way: str) -> None:
    watched = Watched()
    trace = traced(responses=9, steps=1, is_over=False)
    watched.answer(100, trace)
    trace.mark(marks.REQUEST_END, 9_000)
    held = sys.getrefcount(trace)
    if way == "time":
        watched.requests.pass_time()
    else:
        watched.answer(200)
    assert sys.getrefcount(trace) == held - 1


def test_requests_that_never_end_do_not_hold_their_traces_for_good() -> None:
    watched = Watched()
    endless = [traced(responses=9, steps=1, is_over=False) for _ in range(60)]
    held = sys.getrefcount(endless[0])
    for latency, trace in enumerate(endless):
        watched.answer(100 + latency, trace)
    held_behind = sys.getrefcount(endless[0])
    assert held_behind == held


def test_trace_is_whole_when_its_request_ends_after_it_was_counted() -> None:
    watched = Watched()
    running = traced(responses=2, steps=0, is_over=False)
    watched.answer(100, running)
    assert kept_traces(watched)[0][0].first(marks.REQUEST_END) is None
    running.mark(marks.REQUEST_END, 9_000)
    assert kept_traces(watched)[0][0].first(marks.REQUEST_END) == 9_000


def test_trace_with_tensors_is_not_kept() -> None:
    watched = Watched()
    watched.answer(100, Trace(1))
    watched.answer(90, Trace(2, wants_tensors=True))
    slowest = watched.requests.records()[0]
    assert [record.trace is not None for record in slowest] == [True, False]


def test_model_that_is_gone_is_not_watched_any_more() -> None:
    watched = Watched()
    watched.answer(100)
    watched.metrics.remove_model(watched.stats)
    for _ in range(12):
        watched.now_ns += MINUTE_NS
        watched.requests.pass_time()
    assert watched.slowest_ns() == []


def test_requests_of_a_model_that_is_gone_keep_nothing_else_of_it() -> None:
    class Scheduler:
        def pending_count(self) -> int:
            return 0

    watched = Watched()
    scheduler = Scheduler()
    watched.stats.pending_count = scheduler.pending_count
    is_there = weakref.ref(scheduler)
    watched.answer(100)
    watched.metrics.remove_model(watched.stats)
    watched.answer(200)  # its last one ends when it has been withdrawn
    watched.stats = ModelStats("another", 1)
    del scheduler
    assert is_there() is None
    assert watched.slowest_ns() == [200, 100]


def test_models_that_come_and_go_are_forgotten_beyond_a_number() -> None:
    watched = Watched()
    for number in range(1000):
        watched.metrics.remove_model(watched.stats)
        watched.stats = ModelStats("m", number)
        watched.metrics.add_model(watched.stats, {}, 0.0)
        if number % 2:
            watched.answer(1000 + number)
    assert watched.slowest_ns() == list(range(1999, 1797, -2))


def test_without_a_watch_no_request_is_slow() -> None:
    stats = ModelStats("m", 1)
    stats.record_batch([made(0)], 1, 5, MINUTE_NS, TIMING)
    assert stats.slow_ns == NEVER_NS


def test_what_clients_call_their_requests_is_kept_within_bounds() -> None:
    watched = Watched()
    request = InferenceRequest("m", "", "x" * 1_000_000, {}, lambda response: None)
    request.trace = Trace(1)
    request.trace.request_id = request.id
    watched.stats.record_batch([request], 1, 5, 100, TIMING)
    watched.stats.record_failure(request, BACKEND, 10, "y" * 1_000_000)
    request.model_version = "1" + "x" * 1_000_000  # which names version 1
    watched.requests.refuse(request, "y" * 1_000_000)
    slowest, failed = watched.requests.records()
    assert [len(record.request_id) for record in (*slowest, *failed)] == [256] * 3
    assert max(len(record.message) for record in failed) == 1000
    assert max(len(record.version) for record in failed) == 256
    assert [record.trace for record in slowest] == [None]


class Elsewhere:
    """Another process that runs requests of the same model, and tells of them."""

    def __init__(self) -> None:
        self.stats = ModelStats("m", 1)
        self.watch = self.stats.watch = RequestWatch(self.stats, RecentExcerpts())
        self.stats.slow_ns = 0

    def answer(self, latency_ns: int, now_ns: int = 0) -> None:
        self.stats.record_batch([made(now_ns)], 1, now_ns + 5, now_ns + latency_ns, TIMING)

    def fail(self, end_ns: int) -> None:
        self.stats.record_failure(made(0), BACKEND, end_ns, "no", 5, TIMING)

    def tell(self, now_ns: int = 1) -> NewRecords | None:
        new_records: NewRecords | None = marshal.loads(marshal.dumps(self.watch.new_records(now_ns)))
        return new_records


def test_requests_of_another_process_are_kept_with_those_of_this_one() -> None:
    watched, elsewhere = Watched(), Elsewhere()
    for latency in (300, 100):
        watched.answer(latency)
        elsewhere.answer(latency + 50)
    elsewhere.fail(77)
    new_records = elsewhere.tell()
    assert new_records is not None
    watched.requests.add("m", "1", new_records)
    assert watched.slowest_ns() == [350, 300, 150, 100]
    slowest, (failed,) = watched.requests.records()
    assert slowest[0].timing == TIMING
    assert (slowest[0].model, slowest[0].version, slowest[0].request_id) == ("m", "1", "mine")
    assert (failed.reason, failed.message, failed.end_ns, failed.trace) == (BACKEND, "no", 77, None)
    assert watched.requests.counts()[0] == {"m": 1}
    assert elsewhere.tell() is None


def test_only_what_is_new_is_told() -> None:
    elsewhere = Elsewhere()
    for latency in (100, 200, 300, 400, 500):
        elsewhere.answer(latency)
    assert len((elsewhere.tell() or ([],))[0]) == 5
    elsewhere.answer(50)
    elsewhere.answer(600)
    slowest, failed, failed_count = elsewhere.tell() or ([], [], -1)
    assert [told[5] for told in slowest] == [600]
    assert (failed, failed_count) == ([], 0)
    assert elsewhere.tell(1 + MINUTE_NS) is None
    elsewhere.answer(50)  # one of the slowest of the next minute
    assert [told[5] for told in (elsewhere.tell(2 + MINUTE_NS) or ([],))[0]] == [50]


def test_a_flood_of_failures_elsewhere_is_counted_and_its_last_ones_are_told() -> None:
    watched, elsewhere = Watched(), Elsewhere()
    for number in range(1000):
        elsewhere.fail(1 + number)
    new_records = elsewhere.tell()
    assert new_records is not None
    watched.requests.add("m", "1", new_records)
    assert [record.end_ns for record in watched.requests.records()[1]] == list(range(1000, 980, -1))
    assert watched.requests.counts()[0] == {"m": 1000}


def test_new_records_of_a_model_that_nobody_knows_are_dropped() -> None:
    watched, elsewhere = Watched(), Elsewhere()
    elsewhere.fail(1)
    new_records = elsewhere.tell()
    assert new_records is not None
    watched.requests.add("m", "2", new_records)
    assert watched.requests.records() == ([], [])
