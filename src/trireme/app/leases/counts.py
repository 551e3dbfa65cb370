"""What one process has counted of a model, as numbers in a row that another process adds to its own."""

from __future__ import annotations

import mmap
import struct
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
_BUCKETS_AT: Final = _HEAD + len(_REASONS)
_BATCHES_AT: Final = _BUCKETS_AT + 3 * _BUCKET_COUNT
COUNT: Final = _BATCHES_AT + _ROW * MAX_BATCH_SIZES
SWITCH_AT: Final = COUNT
INFLIGHT_AT: Final = COUNT + 1
SIZE: Final = COUNT + 2
"""Of all numbers: behind the counts stand a switch, and the requests under way."""
BYTES: Final = 8
"""Of a number."""

_pack_head: Final = struct.Struct(f"={_HEAD}q").pack_into
_pack_row: Final = struct.Struct(f"={_ROW}q").pack_into


class CountsWriter:
    """Writes what has changed since the last time, which is little from one answer to the next: clients wait for it.
    The memory holds zeros at first, and nobody else writes its counts."""

    __slots__ = ("_buckets", "_executions", "_failures", "_memory", "_success_count", "_view")

    def __init__(self, memory: mmap.mmap, view: memoryview) -> None:
        """Both of the same memory."""
        self._memory = memory
        self._view = view
        self._success_count = 0
        self._failures = [0] * len(_REASONS)
        self._buckets = [0] * (3 * _BUCKET_COUNT)
        self._executions = [0] * MAX_BATCH_SIZES

    def write(self, stats: ModelStats, inflight_count: int) -> None:
        """Shows what has been counted so far, and how many requests are under way."""
        self._view[INFLIGHT_AT] = inflight_count
        _pack_head(
            self._memory,
            0,
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
        )
        failures = list(stats.fail_counts.values())
        if failures != self._failures:
            self._failures = failures
            for at, count in enumerate(failures, _HEAD):
                self._view[at] = count
        fresh_count = stats.success_count - self._success_count
        if fresh_count:
            self._success_count = stats.success_count
            self._write_buckets(stats, fresh_count)
        executions = self._executions
        for row, (size, totals) in enumerate(stats.batches.items()):
            if executions[row] != totals[0]:
                executions[row] = totals[0]
                place = (_BATCHES_AT + row * _ROW) * BYTES
                _pack_row(self._memory, place, size, totals[0], totals[1], totals[2], totals[3])

    def _write_buckets(self, stats: ModelStats, fresh_count: int) -> None:
        """Every request that was answered well since the last time is in one bucket of each kind."""
        written = self._buckets
        first = 0
        for buckets in (stats.request_buckets, stats.queue_buckets, stats.compute_buckets):
            at, missing_count = first, fresh_count
            for count in buckets:
                if written[at] != count:
                    missing_count -= count - written[at]
                    written[at] = count
                    self._view[_BUCKETS_AT + at] = count
                    if not missing_count:
                        break
                at += 1
            first += _BUCKET_COUNT


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
    at = _BUCKETS_AT
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
