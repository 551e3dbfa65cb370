"""What two snapshots of a model's counts say about the time between them: rates, latencies, batch sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import sub
from typing import NamedTuple

from trireme.observe.latency import DEFAULT_BOUNDS_NS
from trireme.observe.stats import ModelStats


class ModelSnapshot(NamedTuple):
    """The counts of a model version at one moment."""

    at_s: float
    began_ns: int
    """When the copy that counts was made: another copy counts from zero."""
    success_count: int
    error_count: int
    """Without what clients gave up."""
    inference_count: int
    execution_count: int
    row_count: int
    """Rows of all executions."""
    sums_ns: tuple[int, int, int, int, int]
    """Of answered requests, altogether: from arrival to answer, in the queue, input, execution, output."""
    buckets: tuple[int, ...]
    slowest_ns: int = 0
    """No request that was answered since the snapshot before took longer."""

    def has_counts_of(self, stats: ModelStats) -> bool:
        """Whether no request has been answered or has failed since."""
        return (
            self.began_ns == stats.began_ns
            and self.success_count == stats.success_count
            and self.error_count == stats.error_count
        )


class Figures(NamedTuple):
    """What happened between two snapshots; times in microseconds are means per answered request."""

    requests_per_s: float
    failures_per_s: float
    inferences_per_s: float
    queue_us: float
    input_us: float
    infer_us: float
    output_us: float
    other_us: float
    """What of a request's time is in none of its phases: reading, checking, answering."""
    p50_us: float
    p99_us: float
    batch_size: float
    """Mean rows per execution."""


IDLE = Figures(*(0.0 for _ in Figures._fields))


class Slowest:
    """The longest latency of a model's requests, for two readers that each begin again when they have read it."""

    __slots__ = ("_live_ns", "_step_ns")

    def __init__(self) -> None:
        self._live_ns = self._step_ns = 0

    def take_live(self, stats: ModelStats) -> int:
        """Since the last call of this, or of `take_step` where nobody watches."""
        self._fetch(stats)
        found, self._live_ns = self._live_ns, 0
        return found

    def begin_live(self) -> None:
        """A window of live figures begins again with the last step, and so has what others have read since then."""
        self._live_ns = self._step_ns

    def take_step(self, stats: ModelStats, is_watched: bool) -> int:
        """Since the last call of this."""
        self._fetch(stats)
        found, self._step_ns = self._step_ns, 0
        if not is_watched:
            self._live_ns = 0
        return found

    def _fetch(self, stats: ModelStats) -> None:
        self._live_ns = max(self._live_ns, stats.slowest_ns)
        self._step_ns = max(self._step_ns, stats.slowest_ns)
        stats.slowest_ns = 0


def read(stats: ModelStats, now_s: float, slowest_ns: int = 0) -> ModelSnapshot:
    """The counts of this moment."""
    return ModelSnapshot(
        now_s,
        stats.began_ns,
        stats.success_count,
        stats.error_count,
        stats.inference_count,
        stats.execution_count,
        stats.executed_rows(),
        (
            stats.request_ns,
            stats.queue_ns,
            stats.compute_input_ns,
            stats.compute_infer_ns,
            stats.compute_output_ns,
        ),
        tuple(stats.request_buckets),
        slowest_ns,
    )


def figures_over(window: Sequence[ModelSnapshot]) -> Figures:
    """From the first of these snapshots to the last."""
    slowest_ns = max((snapshot.slowest_ns for snapshot in itertools.islice(window, 1, None)), default=0)
    return figures_between(window[0], window[-1]._replace(slowest_ns=slowest_ns))


def figures_between(before: ModelSnapshot, now: ModelSnapshot) -> Figures:
    """Nothing but zeros where nothing was answered. Of a model that was loaded again in between, what the new copy has
    done since: what the old one did until then is not known any more."""
    if now.began_ns != before.began_ns:
        before = _nothing_counted(before.at_s, now)
    seconds = now.at_s - before.at_s
    answered = now.success_count - before.success_count
    failed = now.error_count - before.error_count
    if seconds <= 0 or not (answered or failed):
        return IDLE
    executions = now.execution_count - before.execution_count
    inferences = now.inference_count - before.inference_count
    micro = 1000 * (answered or 1)
    total, queue, given, run, taken = map(sub, now.sums_ns, before.sums_ns)
    p50_us, p99_us = quantiles_us(list(map(sub, now.buckets, before.buckets)), now.slowest_ns)
    return Figures(
        answered / seconds,
        failed / seconds,
        inferences / seconds,
        queue / micro,
        given / micro,
        run / micro,
        taken / micro,
        max(0, total - queue - given - run - taken) / micro,
        p50_us,
        p99_us,
        (now.row_count - before.row_count) / executions if executions else 0.0,
    )


def _nothing_counted(at_s: float, now: ModelSnapshot) -> ModelSnapshot:
    """What the copy of a snapshot began with."""
    return ModelSnapshot(at_s, now.began_ns, 0, 0, 0, 0, 0, (0, 0, 0, 0, 0), (0,) * len(now.buckets))


def quantiles_us(counts: Sequence[int], slowest_ns: int = 0) -> tuple[float, float]:
    """The latencies that half of the requests, and 99 of 100, stayed under, as far as buckets tell: in proportion
    within one. None is above that of the slowest request, where it is known."""
    total = sum(counts)
    if not total:
        return 0.0, 0.0
    middle, most = 0.5 * total, 0.99 * total
    p50_us = -1.0
    below = at = 0
    for count in counts:
        if count:
            reached = below + count
            if p50_us < 0 and reached >= middle:
                p50_us = _within(at, (middle - below) / count, slowest_ns)
            if reached >= most:
                return p50_us, _within(at, (most - below) / count, slowest_ns)
            below = reached
        at += 1
    return p50_us, _within(at - 1, 1.0, slowest_ns)


def _within(bucket: int, share: float, slowest_ns: int) -> float:
    """The latency in this share of a bucket, which ends at the slowest request; without that, what lies above every
    bound is taken for the last one."""
    lower_ns = DEFAULT_BOUNDS_NS[bucket - 1] if bucket else 0
    upper_ns = DEFAULT_BOUNDS_NS[bucket] if bucket < len(DEFAULT_BOUNDS_NS) else slowest_ns
    if lower_ns < slowest_ns < upper_ns:
        upper_ns = slowest_ns
    return (lower_ns + (max(lower_ns, upper_ns) - lower_ns) * share) / 1000
