"""Distributions of latencies: histograms with fixed buckets, and quantiles over a sliding window."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

from trireme.core.batch import BatchTiming

DEFAULT_BOUNDS_NS: tuple[int, ...] = tuple(
    round(seconds * 1_000_000_000)
    for seconds in (
        *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
        *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    )
)
"""Upper bounds that tell a 200 µs model from a 20 s one."""

WINDOW_NS = 60_000_000_000
_SLICES = 6
_SLICE_SAMPLES = 2048


class LatencyHistogram:
    """How many latencies fell into each bucket; the last count is of those above every bound."""

    __slots__ = ("bounds_ns", "counts", "sum_ns")

    def __init__(self, bounds_ns: Sequence[int] = DEFAULT_BOUNDS_NS) -> None:
        self.bounds_ns = tuple(bounds_ns)
        self.counts = [0] * (len(self.bounds_ns) + 1)
        self.sum_ns = 0

    def observe(self, ns: int) -> None:
        """Counts one latency."""
        self.counts[bisect_left(self.bounds_ns, ns)] += 1
        self.sum_ns += ns


class LatencySummary:
    """Count and sum since the beginning, and quantiles of the last minute.

    The minute is cut into slices, each of which keeps a bounded random sample, so that memory does not grow with
    the load; up to 2048 observations in ten seconds the quantiles are exact.
    """

    __slots__ = ("_random", "_slices", "count", "sum_us")

    def __init__(self) -> None:
        self.count = 0
        self.sum_us = 0
        self._slices: dict[int, tuple[list[int], list[int]]] = {}  # slice number: samples, [seen]
        self._random = random.Random(0)

    def observe(self, now_ns: int, ns: int) -> None:
        """Takes one latency at this moment."""
        us = ns // 1000
        self.count += 1
        self.sum_us += us
        number = now_ns * _SLICES // WINDOW_NS
        current = self._slices.get(number)
        if current is None:
            self._forget_before(number - _SLICES)
            current = self._slices[number] = ([], [0])
        samples, seen = current
        seen[0] += 1
        if len(samples) < _SLICE_SAMPLES:
            samples.append(us)
            return
        at = self._random.randrange(seen[0])
        if at < _SLICE_SAMPLES:
            samples[at] = us

    def quantiles(self, now_ns: int, wanted: Sequence[float]) -> list[float]:
        """Microseconds at each quantile of the last minute; NaN where nothing was observed in it."""
        self._forget_before(now_ns * _SLICES // WINDOW_NS - _SLICES)
        ordered = sorted(us for samples, _ in self._slices.values() for us in samples)
        if not ordered:
            return [float("nan")] * len(wanted)
        last = len(ordered) - 1
        return [ordered[min(last, int(quantile * len(ordered)))] for quantile in wanted]

    def _forget_before(self, number: int) -> None:
        for old in [key for key in self._slices if key <= number]:
            del self._slices[old]


class LatencySummaries:
    """The summaries of one model: the request as a whole and its phases."""

    __slots__ = ("cache_hit", "cache_miss", "compute_infer", "compute_input", "compute_output", "queue", "request")

    def __init__(self) -> None:
        self.request = LatencySummary()
        self.queue = LatencySummary()
        self.compute_input = LatencySummary()
        self.compute_infer = LatencySummary()
        self.compute_output = LatencySummary()
        self.cache_hit = LatencySummary()
        self.cache_miss = LatencySummary()

    def observe(self, now_ns: int, request_ns: int, queue_ns: int, timing: BatchTiming) -> None:
        """Takes the latencies of one request that was executed."""
        self.request.observe(now_ns, request_ns)
        self.queue.observe(now_ns, queue_ns)
        self.compute_input.observe(now_ns, timing[0])
        self.compute_infer.observe(now_ns, timing[1])
        self.compute_output.observe(now_ns, timing[2])
