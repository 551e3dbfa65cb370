"""What observers see of a model's counts at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DurationStats:
    """How often something happened and how long it took altogether."""

    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class BatchStats:
    """The executions of one total batch size."""

    batch_size: int
    compute_input: DurationStats
    compute_infer: DurationStats
    compute_output: DurationStats


@dataclass(frozen=True, slots=True)
class ResponseStats:
    """The responses at one position in the streams of decoupled requests."""

    compute_infer: DurationStats
    compute_output: DurationStats
    success: DurationStats
    fail: DurationStats
    empty_response: DurationStats
    cancel: DurationStats


@dataclass(frozen=True, slots=True)
class ModelStatsSnapshot:
    """The statistics extension's view of one version of one model at one moment."""

    name: str
    version: str
    last_inference_ms: int
    """Milliseconds since the epoch at which the last counted request arrived; 0 if there was none."""
    inference_count: int
    execution_count: int
    success: DurationStats
    fail: DurationStats
    queue: DurationStats
    compute_input: DurationStats
    compute_infer: DurationStats
    compute_output: DurationStats
    cache_hit: DurationStats
    cache_miss: DurationStats
    batches: tuple[BatchStats, ...]
    responses: Mapping[str, ResponseStats]
    measured: Mapping[str, DurationStats]
    """What the model itself has measured, by name."""


def batch_stats(batch_size: int, totals: list[int]) -> BatchStats:
    """Of executions as they were counted."""
    count, compute_input_ns, compute_infer_ns, compute_output_ns = totals
    return BatchStats(
        batch_size,
        DurationStats(count, compute_input_ns),
        DurationStats(count, compute_infer_ns),
        DurationStats(count, compute_output_ns),
    )


def response_stats(totals: list[int]) -> ResponseStats:
    """Of responses as they were counted."""
    success_count, success_ns, fail_count, fail_ns, empty_count, empty_ns, cancel_count, cancel_ns = totals
    success = DurationStats(success_count, success_ns)
    return ResponseStats(
        compute_infer=success,
        compute_output=DurationStats(success_count, 0),
        success=success,
        fail=DurationStats(fail_count, fail_ns),
        empty_response=DurationStats(empty_count, empty_ns),
        cancel=DurationStats(cancel_count, cancel_ns),
    )
