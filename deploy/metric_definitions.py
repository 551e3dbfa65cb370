"""Every metric that a dashboard or an alert may ask for, as the code defines it: its kind and its help text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trireme.backends.served_engine import metrics as engine
from trireme.observe.cache_stats import CacheStats
from trireme.observe.device_metrics import DeviceMetrics
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.stats import ModelStats

_HEADER = re.compile(r"# HELP (\S+) (.*)\n# TYPE \S+ (\w+)")


@dataclass(frozen=True, slots=True)
class DeviceExample:
    """A device that tells everything."""

    uuid: str = "GPU-example"
    utilization: float | None = 0.5
    memory_total_bytes: int | None = 80 << 30
    memory_used_bytes: int | None = 20 << 30
    power_watts: float | None = 300.0
    power_limit_watts: float | None = 700.0
    energy_joules: float | None = 1000.0


def example_page(devices: tuple[DeviceExample, ...] = (DeviceExample(),)) -> bytes:
    """The metrics page of a server that has one of everything."""
    registry = MetricsRegistry(MetricsOptions(histogram_latencies=True))
    registry.add_model(ModelStats("example", 1), {}, 1.0, has_cache=True)
    watch = registry.workers.watch("example", 1, "example_0")
    watch.count_failure("killed")
    registry.devices = DeviceMetrics(lambda: devices)
    registry.response_cache = CacheStats(1 << 20)
    return registry.page()


def definitions() -> dict[str, tuple[str, str]]:
    """Kind and help text by name."""
    found = {name: (kind, text) for name, text, kind in _HEADER.findall(example_page().decode())}
    for name, (text, _) in engine._HISTOGRAMS.items():
        found[name] = ("histogram", text)
    for name, (text, _) in engine._COUNTERS.items():
        found[name] = ("counter", text)
    for name, (text, _) in engine._GAUGES.items():
        found[name] = ("gauge", text)
    return found
