"""The host's processor and memory as the kernel tells them, no older than an interval."""

from __future__ import annotations

from pathlib import Path

from trireme.core.clock import Clock, monotonic_ns
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.prometheus import PageWriter

_PROC = Path("/proc")
_CpuTimes = tuple[int, int]  # busy, total, in the kernel's ticks


class HostMetrics:
    """Reads `/proc` when a page is asked for and the last reading is too old; silent where there is no `/proc`."""

    __slots__ = ("_clock", "_cpu_times", "_memory", "_options", "_proc", "_read_ns", "_utilization")

    def __init__(self, options: MetricsOptions, *, clock: Clock = monotonic_ns, proc: Path = _PROC) -> None:
        self._options = options
        self._clock = clock
        self._proc = proc
        self._read_ns = clock()
        self._utilization = 0.0
        self._cpu_times: _CpuTimes | None = None
        self._memory: tuple[int, int] | None = None
        if options.has_cpu_metrics:
            self._read()

    def state(self) -> tuple[float | None, int | None, int | None]:
        """Share of processor time in use, bytes of memory there are and in use; None where nobody tells."""
        self._refresh()
        total, used = self._memory or (None, None)
        return None if self._cpu_times is None else self._utilization, total, used

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        self._write_pinned_pool(writer)
        if not self._options.has_cpu_metrics:
            return
        self._refresh()
        if self._cpu_times is not None:
            writer.family("nv_cpu_utilization", "gauge", "Share of processor time in use, between 0 and 1")
            writer.sample("", self._utilization)
        if self._memory is not None:
            total, used = self._memory
            writer.family("nv_cpu_memory_total_bytes", "gauge", "Memory of the host, in bytes")
            writer.sample("", total)
            writer.family("nv_cpu_memory_used_bytes", "gauge", "Memory of the host in use, in bytes")
            writer.sample("", used)

    def _write_pinned_pool(self, writer: PageWriter) -> None:
        if not self._options.pinned_memory_pool_bytes:
            return
        writer.family("nv_pinned_memory_pool_total_bytes", "gauge", "Size of the pinned memory pool, in bytes")
        writer.sample("", self._options.pinned_memory_pool_bytes)
        writer.family("nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory in use, in bytes")
        writer.sample("", 0)

    def _refresh(self) -> None:
        if self._options.has_cpu_metrics and self._clock() - self._read_ns >= self._options.interval_ms * 1_000_000:
            self._read()

    def _read(self) -> None:
        self._read_ns = self._clock()
        times = _cpu_times(self._proc / "stat")
        if times is not None and self._cpu_times is not None:
            busy, total = times[0] - self._cpu_times[0], times[1] - self._cpu_times[1]
            self._utilization = busy / total if total > 0 else 0.0
        self._cpu_times = times
        self._memory = _memory(self._proc / "meminfo")


def _cpu_times(stat: Path) -> _CpuTimes | None:
    try:
        fields = stat.read_text().split("\n", 1)[0].split()
        # user nice system idle iowait irq softirq steal; guest time is already inside user time
        ticks = [int(field) for field in fields[1:9]]
    except (OSError, ValueError):
        return None
    if fields[:1] != ["cpu"] or len(ticks) < 5:
        return None
    total = sum(ticks)
    return total - ticks[3] - ticks[4], total


def _memory(meminfo: Path) -> tuple[int, int] | None:
    try:
        lines = meminfo.read_text().splitlines()
        sizes = {key: int(rest.split()[0]) * 1024 for key, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemTotal"], sizes["MemTotal"] - sizes["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return None
