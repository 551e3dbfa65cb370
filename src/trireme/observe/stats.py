"""What a model's executions have added up to: counts and nanoseconds, recorded by scheduling, read by observers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from trireme.core.batch import BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import CANCELED, FAILURE_REASONS, OTHER
from trireme.observe.latency import DEFAULT_BOUNDS_NS, LatencyHistogram, LatencySummaries
from trireme.observe.recent.requests import NEVER_NS, RequestWatch
from trireme.observe.stats_snapshot import DurationStats, ModelStatsSnapshot, batch_stats, response_stats

log = logging.getLogger(__name__)

_BOUNDS_NS: Final = DEFAULT_BOUNDS_NS
MAX_RESPONSE_POSITIONS: Final = 1024
"""Responses of a stream that are counted each by its place; those behind them are counted with the last."""


class CountingFailures:
    """What failed while requests were only observed: it is logged and counted, and costs no answer."""

    __slots__ = ("_name", "count")

    def __init__(self, name: str) -> None:
        self._name = name
        self.count = 0

    def guard(self, observe: Callable[..., object], *told: object) -> None:
        """Tells an observer something. Where it raises, the 1st, 2nd, 4th time and so on are logged, so that a flood
        fills no log."""
        try:
            observe(*told)
        except Exception as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        self.count += 1
        if self.count & (self.count - 1) == 0:
            told = "failed to count a request of model '%s', which is answered all the same (%d times so far)"
            log.error(told, self._name, self.count, exc_info=error)


class ModelStats:
    """The mutable owner of one model version's counts; every method is called on the event loop's thread. Observers
    that are told of single requests are guarded: none that fails costs a request its answer."""

    __slots__ = (
        "_clock",
        "_measured",
        "_responses",
        "_wall_clock",
        "batches",
        "began_ns",
        "bring_in",
        "cache_hit_count",
        "cache_hit_ns",
        "cache_miss_count",
        "cache_miss_ns",
        "compute_buckets",
        "compute_infer_ns",
        "compute_input_ns",
        "compute_output_ns",
        "counting_failures",
        "execution_count",
        "fail_counts",
        "fail_ns",
        "first_response",
        "inference_count",
        "inflight_elsewhere",
        "last_arrival_ns",
        "name",
        "pending_count",
        "queue_buckets",
        "queue_ns",
        "repeated_count",
        "request_buckets",
        "request_ns",
        "slow_ns",
        "slowest_ns",
        "success_count",
        "summaries",
        "version",
        "watch",
    )

    def __init__(
        self, name: str, version: int, *, clock: Clock = monotonic_ns, wall_clock: Clock = time.time_ns
    ) -> None:
        self.name = name
        self.version = version
        self.counting_failures = CountingFailures(name)
        self._clock = clock
        self._wall_clock = wall_clock
        self.began_ns = clock()  # tells the counts of a model's copies apart: each begins at zero
        self.last_arrival_ns = 0
        self.inference_count = self.execution_count = self.success_count = 0
        self.request_ns = self.queue_ns = self.compute_input_ns = self.compute_infer_ns = self.compute_output_ns = 0
        self.fail_counts = dict.fromkeys(FAILURE_REASONS, 0)
        self.fail_ns = self.repeated_count = 0
        self.cache_hit_count = self.cache_hit_ns = self.cache_miss_count = self.cache_miss_ns = 0
        self.batches: dict[int, list[int]] = {}
        self._responses: dict[int, list[int]] = {}
        self._measured: dict[str, list[int]] = {}
        # How many latencies of answered requests fell under each of DEFAULT_BOUNDS_NS, and above them all.
        self.request_buckets = [0] * (len(DEFAULT_BOUNDS_NS) + 1)
        self.slowest_ns = 0  # of answered requests, at least; whoever reads it sets it back
        self.queue_buckets = self.request_buckets[:]
        self.compute_buckets = self.request_buckets[:]
        self.summaries: LatencySummaries | None = None  # set where the metrics options ask for summaries
        self.first_response: LatencyHistogram | None = None  # set where they ask for histograms
        self.pending_count: Callable[[], int] = _nothing_pending  # set by the scheduler
        self.bring_in: Callable[[], None] | None = None  # adds what other processes have counted, where they do
        self.inflight_elsewhere: Callable[[], int] = _nothing_pending  # requests that they have and have not answered
        self.watch: RequestWatch | None = None  # set where somebody wants to see single requests
        self.slow_ns: int = NEVER_NS  # what the watch is told of

    def record_batch(
        self, requests: Sequence[InferenceRequest], batch_size: int, start_ns: int, end_ns: int, timing: BatchTiming
    ) -> None:
        """One execution is over and every request of it was answered well."""
        self.record_execution(batch_size, timing)
        self.record_success(requests, start_ns, end_ns, timing)

    def record_execution(self, batch_size: int, timing: BatchTiming) -> None:
        """One execution is over, whatever became of its requests."""
        self.execution_count += 1
        totals = self.batches.get(batch_size)
        if totals is None:
            totals = self.batches[batch_size] = [0, 0, 0, 0]
        totals[0] += 1
        totals[1] += timing[0]
        totals[2] += timing[1]
        totals[3] += timing[2]

    def record_success(
        self, requests: Sequence[InferenceRequest], start_ns: int, end_ns: int, timing: BatchTiming
    ) -> None:
        """These requests of one execution were answered well; each is charged the whole execution's phases."""
        request_buckets, queue_buckets = self.request_buckets, self.queue_buckets
        inference_count = request_ns = queue_ns = 0
        for request in requests:
            arrival_ns = request.arrival_ns
            latency = end_ns - arrival_ns
            wait = start_ns - request.queue_ns
            request_ns += latency
            queue_ns += wait
            request_buckets[_bucket(latency)] += 1
            if latency > self.slowest_ns:
                self.slowest_ns = latency
            queue_buckets[_bucket(wait)] += 1
            inference_count += request.batch_size
            if latency >= self.slow_ns:
                self.counting_failures.guard(self._watch_slow, request, start_ns, end_ns, timing)
        count = len(requests)
        compute_input_ns, compute_infer_ns, compute_output_ns = timing
        compute_ns = compute_input_ns + compute_infer_ns + compute_output_ns
        self.compute_buckets[_bucket(compute_ns)] += count
        self.success_count += count
        self.inference_count += inference_count
        self.request_ns += request_ns
        self.queue_ns += queue_ns
        self.compute_input_ns += compute_input_ns * count
        self.compute_infer_ns += compute_infer_ns * count
        self.compute_output_ns += compute_output_ns * count
        self.last_arrival_ns = arrival_ns
        summaries = self.summaries
        if summaries is not None:
            for request in requests:
                wait = start_ns - request.queue_ns
                self.counting_failures.guard(summaries.observe, end_ns, end_ns - request.arrival_ns, wait, timing)

    def _watch_slow(self, request: InferenceRequest, start_ns: int, end_ns: int, timing: BatchTiming) -> None:
        if self.watch is not None:
            self.slow_ns = self.watch.slow(request, start_ns, end_ns, timing)

    def record_failure(
        self,
        request: InferenceRequest,
        reason: str,
        end_ns: int,
        message: str = "",
        start_ns: int = 0,
        timing: BatchTiming | None = None,
    ) -> None:
        """The request was taken and ended with an error; `start_ns` and `timing` are those of an execution that it was
        part of."""
        self.fail_counts[reason] += 1
        self.fail_ns += end_ns - request.arrival_ns
        self.last_arrival_ns = request.arrival_ns
        if self.watch is not None:
            self.counting_failures.guard(self.watch.failed, request, reason, message, end_ns, start_ns, timing)

    def repeat_failure(self, request: InferenceRequest, reason: str, end_ns: int) -> None:
        """Counts a failed request once more, as Triton counts those of ensembles; `error_count` has it once."""
        self.fail_counts[reason] += 1
        self.fail_ns += end_ns - request.arrival_ns
        self.repeated_count += 1

    def record_unanswered(self, request: InferenceRequest, message: str) -> None:
        """The model has answered, which is counted on its own, but the client gets an error in place of that."""
        self.record_failure(request, OTHER, self._clock(), message)

    def record_unwell(
        self, request: InferenceRequest, reason: str, message: str, start_ns: int, end_ns: int, timing: BatchTiming
    ) -> None:
        """The model has ended a request without an error, so that it counts as answered, but not all went well."""
        if self.watch is not None:
            self.counting_failures.guard(self.watch.failed, request, reason, message, end_ns, start_ns, timing)

    def record_first_response(self, request: InferenceRequest, now_ns: int) -> None:
        """The request's first response leaves; does nothing unless that is measured."""
        if self.first_response is not None:
            self.counting_failures.guard(self.first_response.observe, now_ns - request.arrival_ns)

    def record_cache_hit(self, request: InferenceRequest, lookup_ns: int, end_ns: int) -> None:
        """The request was answered from the response cache without an execution."""
        self.success_count += 1
        self.cache_hit_count += 1
        self.cache_hit_ns += lookup_ns
        latency = end_ns - request.arrival_ns
        wait = max(0, end_ns - request.queue_ns - lookup_ns)
        self.request_ns += latency
        self.queue_ns += wait
        self.request_buckets[_bucket(latency)] += 1
        self.slowest_ns = max(self.slowest_ns, latency)
        self.queue_buckets[_bucket(wait)] += 1
        self.last_arrival_ns = request.arrival_ns
        if self.summaries is not None:
            self.counting_failures.guard(self.summaries.queue.observe, end_ns, wait)
            self.counting_failures.guard(self.summaries.cache_hit.observe, end_ns, lookup_ns)

    def record_cache_miss(self, lookup_and_insert_ns: int, end_ns: int) -> None:
        """The response cache was asked in vain; the request's execution is recorded on its own."""
        self.cache_miss_count += 1
        self.cache_miss_ns += lookup_and_insert_ns
        if self.summaries is not None:
            self.counting_failures.guard(self.summaries.cache_miss.observe, end_ns, lookup_and_insert_ns)

    def record_response(self, index: int, ns: int, response: InferenceResponse, is_given_up: bool) -> None:
        """One response of a stream, `ns` after the one before it or after the start of the execution."""
        index = min(index, MAX_RESPONSE_POSITIONS - 1)
        totals = self._responses.get(index)
        if totals is None:
            totals = self._responses[index] = [0] * 8
        if response.is_empty:
            at = 6 if is_given_up else 4
        else:
            at = 2 if response.error is not None else 0
        totals[at] += 1
        totals[at + 1] += ns

    def record_measured(self, durations: Mapping[str, tuple[int, int]]) -> None:
        """What the model has measured of one request: how often, and nanoseconds altogether."""
        for name, (count, ns) in durations.items():
            totals = self._measured.setdefault(name, [0, 0])
            totals[0] += count
            totals[1] += ns

    def measured(self, name: str) -> tuple[int, int]:
        """How often the model has measured something of this name, and nanoseconds altogether."""
        count, ns = self._measured.get(name, (0, 0))
        return count, ns

    def executed_rows(self) -> int:
        """Rows of all executions, also of those whose requests failed."""
        return sum(size * totals[0] for size, totals in self.batches.items())

    @property
    def fail_count(self) -> int:
        """Failed requests of every reason."""
        return sum(self.fail_counts.values())

    @property
    def error_count(self) -> int:
        """Failed requests, each once, without those that their clients gave up."""
        return self.fail_count - self.fail_counts[CANCELED] - self.repeated_count

    def snapshot(self) -> ModelStatsSnapshot:
        """The counts of this moment."""
        if self.bring_in is not None:
            self.bring_in()
        computed = self.success_count - self.cache_hit_count
        return ModelStatsSnapshot(
            name=self.name,
            version=str(self.version),
            last_inference_ms=self._last_inference_ms(),
            inference_count=self.inference_count,
            execution_count=self.execution_count,
            success=DurationStats(self.success_count, self.request_ns),
            fail=DurationStats(self.fail_count, self.fail_ns),
            queue=DurationStats(self.success_count, self.queue_ns),
            compute_input=DurationStats(computed, self.compute_input_ns),
            compute_infer=DurationStats(computed, self.compute_infer_ns),
            compute_output=DurationStats(computed, self.compute_output_ns),
            cache_hit=DurationStats(self.cache_hit_count, self.cache_hit_ns),
            cache_miss=DurationStats(self.cache_miss_count, self.cache_miss_ns),
            batches=tuple(batch_stats(size, totals) for size, totals in sorted(self.batches.items())),
            responses={str(index): response_stats(totals) for index, totals in sorted(self._responses.items())},
            measured={name: DurationStats(*totals) for name, totals in self._measured.items()},
        )

    def _last_inference_ms(self) -> int:
        if not self.last_arrival_ns:
            return 0
        return (self._wall_clock() - (self._clock() - self.last_arrival_ns)) // 1_000_000


def _nothing_pending() -> int:
    return 0


def _bucket(ns: int) -> int:
    """The bucket of a latency. Most are short: compiled, going up from the first bound beats `bisect_left`, which costs
    a call and compares boxed numbers."""
    at = 0
    for bound in _BOUNDS_NS:
        if ns <= bound:
            break
        at += 1
    return at
