"""Rates and latencies between two snapshots of a model's counts."""

from __future__ import annotations

import pytest

from trireme.console.figures import IDLE, Slowest, figures_between, figures_over, quantiles_us, read
from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.observe.failure_reasons import BACKEND
from trireme.observe.stats import ModelStats


def request(arrival_ns: int, queue_ns: int) -> InferenceRequest:
    made = InferenceRequest("m", "", "", {}, lambda response: None)
    made.arrival_ns, made.queue_ns = arrival_ns, queue_ns
    return made


def test_nothing_answered_is_idle() -> None:
    stats = ModelStats("m", 1)
    assert figures_between(read(stats, 0.0), read(stats, 5.0)) is IDLE


def test_phases_are_means_per_request_and_add_up_to_its_time() -> None:
    stats = ModelStats("m", 1)
    before = read(stats, 10.0)
    timing = BatchTiming(100_000, 2_000_000, 300_000)
    for _ in range(4):
        stats.record_batch([request(0, 1_000_000), request(0, 1_000_000)], 2, 2_000_000, 5_000_000, timing)
    stats.record_failure(request(0, 0), BACKEND, 1)
    found = figures_between(before, read(stats, 12.0))
    assert (found.requests_per_s, found.failures_per_s, found.inferences_per_s) == (4.0, 0.5, 4.0)
    assert (found.queue_us, found.input_us, found.infer_us, found.output_us) == (1000, 100, 2000, 300)
    assert found.queue_us + found.input_us + found.infer_us + found.output_us + found.other_us == 5000
    assert found.batch_size == 2


def test_batches_are_as_large_as_they_ran_also_where_requests_failed() -> None:
    stats = ModelStats("m", 1)
    before = read(stats, 0.0)
    stats.record_execution(4, BatchTiming(0, 1, 0))
    for number in range(4):
        if number:
            stats.record_failure(request(0, 0), BACKEND, 1)
        else:
            stats.record_success([request(0, 0)], 0, 1, BatchTiming(0, 1, 0))
    assert figures_between(before, read(stats, 1.0)).batch_size == 4


@pytest.mark.parametrize("answered", [1, 9])
def test_copy_that_was_loaded_in_between_counts_from_zero(answered: int) -> None:
    old, new = ModelStats("m", 1, clock=lambda: 1), ModelStats("m", 1, clock=lambda: 2)
    timing = BatchTiming(100_000, 2_000_000, 300_000)
    for stats, count in ((old, 6), (new, answered)):
        for _ in range(count):
            stats.record_batch([request(0, 1_000_000)], 1, 2_000_000, 5_000_000, timing)
    old.record_failure(request(0, 0), BACKEND, 1)
    found = figures_between(read(old, 10.0), read(new, 20.0))
    assert (found.requests_per_s, found.failures_per_s) == (answered / 10, 0)
    assert (found.queue_us, found.infer_us, found.batch_size) == (1000, 2000, 1)
    assert 2_500 <= found.p50_us <= found.p99_us <= 5_000


def test_quantile_lies_in_its_bucket_in_proportion() -> None:
    counts = [0] * 19
    counts[3] = 100  # between 0.5 and 1 ms
    assert quantiles_us(counts) == (pytest.approx(750), pytest.approx(995))
    counts[18] = 50  # above every bound
    assert quantiles_us(counts) == (pytest.approx(875), 60_000_000)
    assert quantiles_us([0] * 19) == (0, 0)


def test_quantiles_are_not_above_the_slowest_request() -> None:
    counts = [0] * 19
    counts[4] = 100  # between 1 and 2.5 ms
    assert quantiles_us(counts, 1_100_000) == (pytest.approx(1050), pytest.approx(1099))
    counts[18] = 100  # above every bound
    assert quantiles_us(counts, 80_000_000_000) == (2500, pytest.approx(79_600_000))


def answer(stats: ModelStats, latency_ns: int) -> None:
    stats.record_batch([request(0, 0)], 1, 0, latency_ns, BatchTiming(0, 1, 0))


def test_slowest_request_is_that_of_the_window_and_each_reader_has_its_own() -> None:
    stats, slowest = ModelStats("m", 1), Slowest()
    answer(stats, 90_000_000)
    slowest.take_step(stats, is_watched=False)
    window = [read(stats, 0.0)]
    for second, latencies in enumerate(((1_050_000, 1_100_000), (1_080_000,)), 1):
        for latency_ns in latencies:
            answer(stats, latency_ns)
        window.append(read(stats, second, slowest.take_live(stats)))
    assert figures_over(window).p99_us <= 1_100
    assert slowest.take_step(stats, is_watched=True) == 1_100_000
    answer(stats, 2_000_000)
    assert slowest.take_step(stats, is_watched=True) == 2_000_000
    assert slowest.take_live(stats) == 2_000_000
    assert slowest.take_step(stats, is_watched=True) == 0


def test_request_from_the_cache_may_be_the_slowest() -> None:
    stats = ModelStats("m", 1)
    stats.record_cache_hit(request(0, 0), 10, 3_000)
    assert Slowest().take_live(stats) == 3_000
