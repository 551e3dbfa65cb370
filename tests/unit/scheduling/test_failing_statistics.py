"""Statistics and traces that fail: what they observe is answered all the same, and the failure is counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import InternalError
from trireme.core.response import InferenceResponse
from trireme.core.trace import Trace
from trireme.observe.latency import LatencyHistogram, LatencySummaries
from trireme.observe.recent.requests import RequestWatch
from trireme.observe.stats import ModelStats


class FailingWatch(RequestWatch):
    """Has no room for anything."""

    def __init__(self) -> None:
        """Nothing is kept."""

    def slow(self, *told: Any) -> int:
        raise MemoryError("no room for a slow request")

    def failed(self, *told: Any) -> None:
        raise MemoryError("no room for a failed request")


class FailingSummaries(LatencySummaries):
    """Cannot take a latency."""

    def observe(self, *told: Any) -> None:
        raise OverflowError("no such latency")


class FailingHistogram(LatencyHistogram):
    """Cannot take a latency."""

    def observe(self, ns: int) -> None:
        raise IndexError("no such bucket")


class FailingTrace(Trace):
    """Forgets what it is told."""

    def ran(self, *told: Any) -> None:
        raise RuntimeError("no mark could be set")


def fail_everywhere(stats: ModelStats) -> None:
    stats.watch = FailingWatch()
    stats.slow_ns = 0
    stats.summaries = FailingSummaries()
    stats.first_response = FailingHistogram()


@pytest.mark.parametrize("kind", ["batches", "sequences"])
def test_every_request_of_a_batch_is_answered_and_counted(bench: Any, kind: str) -> None:
    if kind == "batches":
        bench.batcher()
    else:
        bench.build(sequence_batching=SequenceBatchingConfig(max_idle_us=1_000_000), max_batch_size=4)
    instance = bench.instance()
    fail_everywhere(bench.stats)
    for name in "abc":
        bench.send(name, **({"correlation_id": ord(name), "flags": 3} if kind == "sequences" else {}))
    while instance.batches:
        instance.finish()
    assert [len(bench.client.answers[name]) for name in "abc"] == [1, 1, 1]
    assert bench.scheduler.inflight_count == 0
    assert bench.stats.snapshot().success.count == 3
    assert bench.stats.counting_failures.count


def test_failed_streamed_and_traced_requests_are_answered_too(bench: Any) -> None:
    bench.batcher()
    instance = bench.instance()
    fail_everywhere(bench.stats)
    bench.send("traced", trace=FailingTrace(1))
    bench.send("failed")
    bench.send("streamed")
    instance.finish()
    [batch] = instance.batches
    failure = InferenceResponse.of_error(InternalError("out of luck"))
    instance.finish([failure, None])
    bench.scheduler.respond(batch.requests[1], InferenceResponse([]))
    assert [len(bench.client.answers[name]) for name in ("traced", "failed", "streamed")] == [1, 1, 1]
    assert bench.client.error("failed").message == "out of luck"
    assert bench.scheduler.inflight_count == 0
    assert (bench.stats.fail_count, bench.stats.success_count) == (1, 2)


def test_log_says_why_without_a_flood(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench.build()
    bench.instance(is_instant=True)
    bench.stats.summaries = FailingSummaries()
    with caplog.at_level(logging.ERROR):
        for number in range(100):
            bench.send(f"{number}")
    assert bench.stats.counting_failures.count == 100
    assert len(caplog.records) == 7
    assert caplog.records[0].getMessage() == (
        "failed to count a request of model 'model', which is answered all the same (1 times so far)"
    )
    assert caplog.records[0].exc_info is not None
