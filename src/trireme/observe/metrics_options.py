"""Which metrics the page shows, as `--metrics-config` and its neighbours set it."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """What the metrics page holds."""

    counter_latencies: bool = True
    """Whether counters move. As in Triton, false leaves out the latency and cache counters and keeps the others 0."""
    histogram_latencies: bool = False
    """Whether each model has a histogram of the time to its requests' first response."""
    summary_latencies: bool = False
    """Whether each model has summaries of its latencies."""
    summary_quantiles: tuple[float, ...] = DEFAULT_QUANTILES
    """The quantiles of the summaries; ours are exact, so the error that may stand beside each is not needed."""
    has_cpu_metrics: bool = True
    """Whether the host's processor and memory are shown (`--allow-cpu-metrics`)."""
    interval_ms: int = 2000
    """How old the host's numbers may be (`--metrics-interval-ms`)."""
    pinned_memory_pool_bytes: int = 268_435_456
    """The size that is reported for the pinned memory pool; 0 leaves it out."""
