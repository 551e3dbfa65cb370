"""Which metrics the page shows, as `--metrics-config` and its neighbours set it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trireme.core.errors import InvalidArgumentError

log = logging.getLogger(__name__)

DEFAULT_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
_TRUE = frozenset({"true", "on", "1"})
_FALSE = frozenset({"false", "off", "0"})
_SWITCHES = ("counter_latencies", "histogram_latencies", "summary_latencies")


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


def with_metrics_config(options: MetricsOptions, entries: Iterable[str]) -> MetricsOptions:
    """The options as the `<setting>=<value>` entries of `--metrics-config` change them."""
    for entry in entries:
        setting, equals, value = entry.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--metrics-config option format is '<setting>=<value>'. Got {entry}")
        setting, value = setting.strip(), value.strip().strip("\"'")
        if setting in _SWITCHES:
            options = _switched(options, setting, _boolean(setting, value))
        elif setting == "summary_quantiles":
            options = replace(options, summary_quantiles=_quantiles(value))
        else:
            known = ", ".join((*_SWITCHES, "summary_quantiles"))
            log.warning("--metrics-config setting '%s' is not known and has no effect; known are %s", setting, known)
    return options


def _switched(options: MetricsOptions, setting: str, value: bool) -> MetricsOptions:
    if setting == "counter_latencies":
        return replace(options, counter_latencies=value)
    if setting == "histogram_latencies":
        return replace(options, histogram_latencies=value)
    return replace(options, summary_latencies=value)


def _boolean(setting: str, value: str) -> bool:
    lowered = value.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise InvalidArgumentError(f"--metrics-config {setting} expects true or false, got '{value}'")


def _quantiles(value: str) -> tuple[float, ...]:
    quantiles = []
    for pair in value.split(","):
        quantile, _, error = pair.partition(":")
        try:
            numbers = (float(quantile), float(error or "0"))
        except ValueError:
            numbers = (-1.0, -1.0)
        if not (0.0 <= numbers[0] <= 1.0 and 0.0 <= numbers[1] <= 1.0):
            raise InvalidArgumentError(
                f"--metrics-config summary_quantiles expects '<quantile>:<error>' pairs between 0 and 1 "
                f"separated by commas, got '{pair}'"
            )
        quantiles.append(numbers[0])
    return tuple(quantiles)
