"""What the server spent on batches of each size between two looks at its statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trireme.tools.analyze.trial import BatchTime

Counts = dict[int, tuple[int, int]]
"""By batch size: how many, and their nanoseconds."""
_STAGES = ("compute_input", "compute_infer", "compute_output")


def read_batches(entries: Iterable[Mapping[str, Any]]) -> Counts:
    """All versions of a model together."""
    found: Counts = {}
    for entry in entries:
        for batch in entry.get("batch_stats", ()):
            size = int(batch.get("batch_size", 0))
            count = int(batch.get("compute_infer", {}).get("count", 0))
            total = sum(int(batch.get(stage, {}).get("ns", 0)) for stage in _STAGES)
            before = found.get(size, (0, 0))
            found[size] = (before[0] + count, before[1] + total)
    return found


def batches_between(before: Counts, after: Counts) -> tuple[BatchTime, ...]:
    """What came between; a server that has been started anew counts from nothing."""
    found = []
    for size, (count, total) in sorted(after.items()):
        old_count, old_total = before.get(size, (0, 0))
        if count < old_count:
            old_count = old_total = 0
        if count > old_count:
            found.append(BatchTime(size, count - old_count, total - old_total))
    return tuple(found)
