"""What the server counted between two looks at its statistics, the models inside an ensemble included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import ComposingModel

_DURATIONS = ("success", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
Snapshot = dict[tuple[str, str], "ServerCounts"]
"""By model and version."""


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Counts and nanoseconds of one model."""

    inference_count: int = 0
    execution_count: int = 0
    success_count: int = 0
    success_ns: int = 0
    queue_count: int = 0
    queue_ns: int = 0
    compute_input_count: int = 0
    compute_input_ns: int = 0
    compute_infer_count: int = 0
    compute_infer_ns: int = 0
    compute_output_count: int = 0
    compute_output_ns: int = 0
    cache_hit_count: int = 0
    cache_hit_ns: int = 0
    cache_miss_count: int = 0
    cache_miss_ns: int = 0

    def plus(self, other: ServerCounts, sign: int = 1) -> ServerCounts:
        return ServerCounts(*(getattr(self, f.name) + sign * getattr(other, f.name) for f in fields(ServerCounts)))

    @property
    def compute_ns(self) -> int:
        return self.compute_input_ns + self.compute_infer_ns + self.compute_output_ns


@dataclass(frozen=True, slots=True)
class ServerStats:
    """A model's share of a window, and that of the models it is made of."""

    name: str
    version: str
    counts: ServerCounts
    parts: tuple[ServerStats, ...] = ()

    def plus(self, other: ServerStats) -> ServerStats:
        """Both windows together; they have the same parts."""
        if len(self.parts) != len(other.parts):
            raise PerfError("Inconsistent ensemble setting detected between the trials.")
        parts = tuple(mine.plus(its) for mine, its in zip(self.parts, other.parts, strict=True))
        return ServerStats(self.name, self.version, self.counts.plus(other.counts), parts)


def snapshot(entries: Iterable[dict[str, Any]]) -> Snapshot:
    """What a look at the statistics showed."""
    found = {}
    for entry in entries:
        inference = entry.get("inference_stats", {})
        values = {"inference_count": int(entry.get("inference_count", 0))}
        values["execution_count"] = int(entry.get("execution_count", 0))
        for name in _DURATIONS:
            duration = inference.get(name, {})
            values[f"{name}_count"] = int(duration.get("count", 0))
            values[f"{name}_ns"] = int(duration.get("ns", 0))
        found[entry["name"], entry["version"]] = ServerCounts(**values)
    return found


def difference(before: Snapshot, after: Snapshot, model: ComposingModel, is_cached: bool) -> ServerStats:
    """What came between; of several versions the newest that was busy is meant."""
    version = model.version or _busy_version(before, after, model.name)
    key = (model.name, version)
    if key not in after and not is_cached:
        raise PerfError("failed to find the requested model version")
    counts = after.get(key, ServerCounts()).plus(before.get(key, ServerCounts()), -1)
    parts = tuple(difference(before, after, part, is_cached) for part in model.parts)
    return ServerStats(model.name, version, counts, parts)


def _busy_version(before: Snapshot, after: Snapshot, name: str) -> str:
    versions = [version for model, version in after if model == name]
    busy = [
        version
        for version in versions
        if after[name, version].queue_count > before.get((name, version), ServerCounts()).queue_count
        or after[name, version].success_count > before.get((name, version), ServerCounts()).success_count
    ]
    return max(busy or versions, key=int, default="-1")
