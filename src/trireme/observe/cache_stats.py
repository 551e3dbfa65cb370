"""What the response cache of the server has done: counts and nanoseconds, over all models."""

from __future__ import annotations


class CacheStats:
    """The mutable owner of one cache's counts; written by the cache, read by the metrics page."""

    __slots__ = (
        "entry_count",
        "eviction_count",
        "hit_count",
        "insertion_ns",
        "lookup_count",
        "lookup_ns",
        "size_bytes",
        "used_bytes",
    )

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = self.entry_count = self.eviction_count = 0
        self.lookup_count = self.hit_count = self.lookup_ns = self.insertion_ns = 0

    @property
    def utilization(self) -> float:
        """From 0, empty, to 1, full."""
        return self.used_bytes / self.size_bytes if self.size_bytes else 1.0
