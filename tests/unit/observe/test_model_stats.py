"""Statistics of a model: what is counted, and what a snapshot says."""

from __future__ import annotations

from typing import Any

from trireme.core.batch import BatchTiming
from trireme.core.errors import InternalError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import BACKEND, CANCELED
from trireme.observe.latency import LatencySummaries
from trireme.observe.stats import MAX_RESPONSE_POSITIONS, ModelStats
from trireme.observe.stats_snapshot import DurationStats

TIMING = BatchTiming(10, 200, 30)


def request(arrival_ns: int, queue_ns: int, batch_size: int = 1) -> InferenceRequest:
    made = InferenceRequest("m", "", "", {}, lambda response: None)
    made.arrival_ns, made.queue_ns, made.batch_size = arrival_ns, queue_ns, batch_size
    return made


def stats_at(now_ns: int = 0) -> ModelStats:
    return ModelStats("m", 2, clock=lambda: now_ns, wall_clock=lambda: now_ns + 1_700_000_000_000_000_000)


def test_untouched_model_has_nothing_to_tell() -> None:
    snapshot = stats_at().snapshot()
    assert (snapshot.name, snapshot.version, snapshot.last_inference_ms) == ("m", "2", 0)
    assert snapshot.success == snapshot.fail == snapshot.cache_hit == DurationStats(0, 0)
    assert (snapshot.batches, snapshot.responses) == ((), {})


def test_batch_counts_once_as_execution_and_each_request_pays_for_all_of_it() -> None:
    stats = stats_at()
    stats.record_batch([request(100, 150, 2), request(120, 160)], 3, 200, 500, TIMING)
    snapshot = stats.snapshot()
    assert (snapshot.inference_count, snapshot.execution_count) == (3, 1)
    assert snapshot.success == DurationStats(2, 400 + 380)
    assert snapshot.queue == DurationStats(2, 50 + 40)
    assert snapshot.compute_input == DurationStats(2, 20)
    assert snapshot.compute_infer == DurationStats(2, 400)
    assert snapshot.compute_output == DurationStats(2, 60)
    [batch] = snapshot.batches
    assert (batch.batch_size, batch.compute_infer) == (3, DurationStats(1, 200))


def test_batch_sizes_are_listed_in_ascending_order() -> None:
    stats = stats_at()
    for size in (4, 1, 2, 1):
        stats.record_execution(size, TIMING)
    assert [(batch.batch_size, batch.compute_input.count) for batch in stats.snapshot().batches] == [
        (1, 2),
        (2, 1),
        (4, 1),
    ]


def test_failures_are_counted_by_reason_and_touch_no_success() -> None:
    stats = stats_at()
    stats.record_failure(request(100, 100), BACKEND, 350)
    stats.record_failure(request(100, 100), CANCELED, 150)
    snapshot = stats.snapshot()
    assert snapshot.fail == DurationStats(2, 300)
    assert stats.fail_counts == {"REJECTED": 0, "CANCELED": 1, "BACKEND": 1, "OTHER": 0}
    assert snapshot.success.count == snapshot.inference_count == 0


def test_last_inference_is_the_wall_time_of_the_last_arrival() -> None:
    stats = stats_at(now_ns=9_000_000_000)
    stats.record_failure(request(4_000_000_000, 0), BACKEND, 5_000_000_000)
    assert stats.snapshot().last_inference_ms == 1_700_000_000_000 + 4_000


def test_cache_hits_are_successes_without_compute() -> None:
    stats = stats_at()
    stats.record_batch([request(100, 100)], 1, 200, 500, TIMING)
    stats.record_cache_hit(request(100, 110), lookup_ns=40, end_ns=200)
    stats.record_cache_miss(25, 600)
    snapshot = stats.snapshot()
    assert (snapshot.success.count, snapshot.compute_infer.count, snapshot.inference_count) == (2, 1, 1)
    assert (snapshot.cache_hit, snapshot.cache_miss) == (DurationStats(1, 40), DurationStats(1, 25))


def test_responses_of_streams_are_counted_by_position() -> None:
    stats = stats_at()
    stats.record_response(0, 5, InferenceResponse([]), False)
    stats.record_response(0, 7, InferenceResponse.of_error(ServingError("x")), False)
    stats.record_response(1, 9, InferenceResponse.final_mark(), False)
    stats.record_response(1, 3, InferenceResponse.final_mark(), True)
    responses: Any = stats.snapshot().responses
    assert responses["0"].success == responses["0"].compute_infer == DurationStats(1, 5)
    assert responses["0"].fail == DurationStats(1, 7)
    assert (responses["1"].empty_response, responses["1"].cancel) == (DurationStats(1, 9), DurationStats(1, 3))


def test_latency_buckets_hold_every_answered_request() -> None:
    stats = stats_at()
    stats.record_batch([request(0, 0), request(0, 0)], 2, 90_000, 300_000_000, TIMING)
    assert sum(stats.request_buckets) == sum(stats.queue_buckets) == sum(stats.compute_buckets) == 2
    assert stats.queue_buckets[0] == 2
    assert stats.request_buckets[0] == 0


def test_summaries_are_fed_when_they_are_wanted() -> None:
    stats = stats_at()
    stats.summaries = LatencySummaries()
    stats.record_batch([request(0, 1_000)], 1, 5_000, 9_000, TIMING)
    assert stats.summaries.request.quantiles(9_000, [0.5]) == [9]
    assert stats.summaries.queue.sum_us == 4


def test_responses_far_down_a_stream_are_counted_together() -> None:
    stats = stats_at()
    for index in range(MAX_RESPONSE_POSITIONS + 500):
        stats.record_response(index, 3, InferenceResponse([], InternalError("x"), is_final=False), False)
    responses = stats.snapshot().responses
    assert len(responses) == MAX_RESPONSE_POSITIONS
    assert responses["0"].fail == DurationStats(1, 3)
    assert responses[str(MAX_RESPONSE_POSITIONS - 1)].fail == DurationStats(501, 1503)
