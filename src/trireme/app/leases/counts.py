"""What one process has counted of a model, as numbers in a row that another process adds to its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trireme.observe.failure_reasons import FAILURE_REASONS
from trireme.observe.latency import DEFAULT_BOUNDS_NS
from trireme.observe.stats import ModelStats

_REASONS: Final = tuple(FAILURE_REASONS)
_BUCKET_COUNT: Final = len(DEFAULT_BOUNDS_NS) + 1
_UPPER_NS: Final = *DEFAULT_BOUNDS_NS, DEFAULT_BOUNDS_NS[-1]
MAX_BATCH_SIZES: Final = 64
_ROW: Final = 5
_HEAD: Final = 11
SUCCESS_AT: Final = 4
"""Where the requests that were answered well stand."""
_BATCHES_AT: Final = _HEAD + len(_REASONS) + 3 * _BUCKET_COUNT
COUNT: Final = _BATCHES_AT + _ROW * MAX_BATCH_SIZES


def counts_of(stats: ModelStats) -> list[int]:
    """All that there is to add, without the batch sizes that have not been seen."""
    counts = [
        stats.pending_count(),
        stats.last_arrival_ns,
        stats.inference_count,
        stats.execution_count,
        stats.success_count,
        stats.request_ns,
        stats.queue_ns,
        stats.compute_input_ns,
        stats.compute_infer_ns,
        stats.compute_output_ns,
        stats.fail_ns,
        *stats.fail_counts.values(),
        *stats.request_buckets,
        *stats.queue_buckets,
        *stats.compute_buckets,
    ]
    for size, totals in stats.batches.items():
        counts.append(size)
        counts += totals
    return counts


def add_counts(stats: ModelStats, before: Sequence[int], now: Sequence[int]) -> None:
    """Adds what has been counted between two readings of the same length."""
    delta = [new - old for old, new in zip(before, now, strict=True)]
    stats.last_arrival_ns = max(stats.last_arrival_ns, now[1])
    stats.inference_count += delta[2]
    stats.execution_count += delta[3]
    stats.success_count += delta[4]
    stats.request_ns += delta[5]
    stats.queue_ns += delta[6]
    stats.compute_input_ns += delta[7]
    stats.compute_infer_ns += delta[8]
    stats.compute_output_ns += delta[9]
    stats.fail_ns += delta[10]
    for at, reason in enumerate(_REASONS, _HEAD):
        stats.fail_counts[reason] += delta[at]
    at = _HEAD + len(_REASONS)
    stats.slowest_ns = max(stats.slowest_ns, _longest_ns(delta[at : at + _BUCKET_COUNT]))
    for buckets in (stats.request_buckets, stats.queue_buckets, stats.compute_buckets):
        for index in range(_BUCKET_COUNT):
            buckets[index] += delta[at + index]
        at += _BUCKET_COUNT
    for row in range(_BATCHES_AT, COUNT, _ROW):
        if not now[row]:
            break
        totals = stats.batches.setdefault(now[row], [0, 0, 0, 0])
        for index in range(4):
            totals[index] += delta[row + 1 + index]


def _longest_ns(buckets: Sequence[int]) -> int:
    """What the slowest of these requests took at most; what lies above every bound is taken for the last one."""
    return max((bound for bound, count in zip(_UPPER_NS, buckets, strict=True) if count), default=0)
