"""How often each adapter is asked for, and how many are in memory, as metrics."""

from __future__ import annotations

import threading
from collections import Counter

from trireme.backends.python.pb_utils.metrics import Metric, MetricFamily, MetricKind
from trireme.llm.adapters.store import AdapterStore


class AdapterMetrics:
    """Counts in any thread; tells the server in the one that calls `update`."""

    def __init__(self, store: AdapterStore, model: str, version: str) -> None:
        self._store = store
        self._labels = {"model": model, "version": version}
        self._requests = MetricFamily("llm:adapter_requests_total", "Requests with each adapter.", MetricKind.COUNTER)
        kept = MetricFamily("llm:adapters_in_memory", "Adapters that are in memory.", MetricKind.GAUGE)
        self._kept = kept.Metric(self._labels)
        self._families = (self._requests, kept)
        self._counters: dict[str, Metric] = {}
        self._new: Counter[str] = Counter()
        self._told_kept = 0
        self._lock = threading.Lock()

    def count(self, adapter: str) -> None:
        """A request with an adapter that there is has begun."""
        with self._lock:
            self._new[adapter] += 1

    def update(self) -> None:
        """Tells what was counted since the last time."""
        with self._lock:
            counted, self._new = self._new, Counter()
        for name, count in counted.items():
            if name not in self._counters:
                self._counters[name] = self._requests.Metric({**self._labels, "adapter": name})
            self._counters[name].increment(count)
        kept = len(self._store.kept_names)
        if kept != self._told_kept:
            self._kept.set(kept)
            self._told_kept = kept
