"""How models come and go with their requests, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trireme.observe.latency import LatencyHistogram
from trireme.observe.prometheus import PageWriter, label_text

LOAD_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SECOND_NS = 1_000_000_000


class OnDemandMetrics:
    """Counts loads and evictions by model; models appear with the first thing that happens to them."""

    __slots__ = ("_evictions", "_failures", "_load_times", "waiting")

    def __init__(self) -> None:
        self.waiting: Callable[[], Mapping[str, int]] = dict  # requests that wait, by model
        self._load_times: dict[str, LatencyHistogram] = {}
        self._failures: dict[str, int] = {}
        self._evictions: dict[tuple[str, str], int] = {}

    def count_load(self, model: str, duration_ns: int) -> None:
        """A request's model has been loaded."""
        if model not in self._load_times:
            self._load_times[model] = LatencyHistogram([round(bound * _SECOND_NS) for bound in LOAD_BOUNDS_S])
        self._load_times[model].observe(duration_ns)

    def count_failure(self, model: str) -> None:
        """A request's model could not be loaded."""
        self._failures[model] = self._failures.get(model, 0) + 1

    def count_eviction(self, model: str, reason: str) -> None:
        """A model was unloaded without being asked to; `reason` is one word."""
        self._evictions[model, reason] = self._evictions.get((model, reason), 0) + 1

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        writer.family("trireme_on_demand_loads_total", "counter", "Times a request had its model loaded")
        for model, times in self._load_times.items():
            writer.sample(label_text({"model": model}), sum(times.counts))
        writer.family("trireme_on_demand_load_failures_total", "counter", "Times such a load failed")
        for model, count in self._failures.items():
            writer.sample(label_text({"model": model}), count)
        writer.family("trireme_on_demand_evictions_total", "counter", "Times a model made room, by reason")
        for (model, reason), count in self._evictions.items():
            writer.sample(label_text({"model": model, "reason": reason}), count)
        writer.family("trireme_on_demand_load_seconds", "histogram", "Time from the first request to the loaded model")
        for model, times in self._load_times.items():
            writer.histogram(label_text({"model": model}), LOAD_BOUNDS_S, times.counts, times.sum_ns / _SECOND_NS)
        writer.family("trireme_on_demand_waiting_requests", "gauge", "Requests that wait for their model to load")
        waiting = {**dict.fromkeys(self._load_times, 0), **self.waiting()}
        for model, count in waiting.items():
            writer.sample(label_text({"model": model}), count)
