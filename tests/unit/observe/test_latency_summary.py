"""Quantiles over a sliding window."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trireme.observe.latency import WINDOW_NS, LatencyHistogram, LatencySummary


def test_quantiles_are_of_the_last_minute_and_the_sum_of_all_time() -> None:
    summary = LatencySummary()
    summary.observe(0, 1_000_000)
    for number in range(1, 101):
        summary.observe(2 * WINDOW_NS, number * 1_000)
    assert summary.quantiles(2 * WINDOW_NS, [0.5, 0.9, 1.0]) == [51, 91, 100]
    assert (summary.count, summary.sum_us) == (101, 1_000 + 5_050)
    assert all(math.isnan(value) for value in summary.quantiles(4 * WINDOW_NS, [0.5, 0.9]))


def test_memory_is_bounded_under_load() -> None:
    summary = LatencySummary()
    for number in range(10_000):
        summary.observe(1, number * 1_000)
    [(samples, _)] = summary._slices.values()
    assert len(samples) == 2048
    [median] = summary.quantiles(1, [0.5])
    assert 4_000 < median < 6_000


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=50))
def test_quantiles_are_observed_values_in_ascending_order(latencies: list[int]) -> None:
    summary = LatencySummary()
    for latency in latencies:
        summary.observe(7, latency)
    quantiles = summary.quantiles(7, [0.0, 0.5, 0.99, 1.0])
    assert quantiles == sorted(quantiles)
    assert {value * 1 for value in quantiles} <= {latency // 1000 for latency in latencies}
    assert (quantiles[0], quantiles[-1]) == (min(latencies) // 1000, max(latencies) // 1000)


def test_histogram_bound_belongs_to_its_own_bucket() -> None:
    histogram = LatencyHistogram([10, 20])
    for latency in (10, 11, 20, 21):
        histogram.observe(latency)
    assert (histogram.counts, histogram.sum_ns) == ([1, 2, 1], 62)
