"""Readings of the statistics, and what happened between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Key = tuple[str, str]
"""Model and version."""


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """The counters of one version, from its load on."""

    requests: int = 0
    """Those that succeeded."""
    failures: int = 0
    inferences: int = 0
    executions: int = 0
    latency_ns: int = 0
    queue_ns: int = 0
    queue_count: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0
    compute_count: int = 0
    cache_hits: int = 0

    def since(self, before: ModelCounts) -> ModelCounts:
        """What was added; all of it where the counters began anew, as they do at a reload."""
        mine, theirs = _numbers(self), _numbers(before)
        if any(now < then for now, then in zip(mine, theirs, strict=True)):
            return self
        return ModelCounts(*(now - then for now, then in zip(mine, theirs, strict=True)))

    @property
    def latency_ms(self) -> float | None:
        """The mean time of a successful request."""
        return _mean_ms(self.latency_ns, self.requests)

    @property
    def queue_ms(self) -> float | None:
        return _mean_ms(self.queue_ns, self.queue_count)

    @property
    def compute_ms(self) -> float | None:
        """The mean time of all phases of an execution."""
        whole = self.compute_input_ns + self.compute_infer_ns + self.compute_output_ns
        return _mean_ms(whole, self.compute_count)

    @property
    def batch_size(self) -> float | None:
        """The mean of the executions."""
        return self.inferences / self.executions if self.executions else None


def read_counts(entries: Iterable[Mapping[str, Any]]) -> dict[Key, ModelCounts]:
    """The statistics of a server by model and version; numbers may be texts of digits, as over gRPC."""
    return {(entry["name"], str(entry.get("version", ""))): _counts(entry) for entry in entries}


@dataclass(frozen=True, slots=True)
class Rates:
    """What one version did between two snapshots."""

    requests_per_s: float
    inferences_per_s: float
    failures_per_s: float
    added: ModelCounts


def rates_between(
    before: Mapping[Key, ModelCounts], now: Mapping[Key, ModelCounts], seconds: float
) -> dict[Key, Rates]:
    """For every version of the later reading; one that was not in the earlier has all it did counted."""
    found = {}
    for key, counts in now.items():
        added = counts.since(before.get(key, ModelCounts()))
        found[key] = Rates(
            (added.requests + added.failures) / seconds, added.inferences / seconds, added.failures / seconds, added
        )
    return found


def _counts(entry: Mapping[str, Any]) -> ModelCounts:
    stats = entry.get("inference_stats", {})

    def of(name: str, field: str) -> int:
        return int(stats.get(name, {}).get(field, 0))

    return ModelCounts(
        requests=of("success", "count"),
        failures=of("fail", "count"),
        inferences=int(entry.get("inference_count", 0)),
        executions=int(entry.get("execution_count", 0)),
        latency_ns=of("success", "ns"),
        queue_ns=of("queue", "ns"),
        queue_count=of("queue", "count"),
        compute_input_ns=of("compute_input", "ns"),
        compute_infer_ns=of("compute_infer", "ns"),
        compute_output_ns=of("compute_output", "ns"),
        compute_count=of("compute_infer", "count"),
        cache_hits=of("cache_hit", "count"),
    )


def _numbers(counts: ModelCounts) -> list[int]:
    return [getattr(counts, name) for name in ModelCounts.__slots__]


def _mean_ms(total_ns: int, count: int) -> float | None:
    return total_ns / count / 1e6 if count else None
