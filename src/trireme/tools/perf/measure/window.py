"""The numbers of one window, and of several taken together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trireme.tools.perf.load.records import Records
from trireme.tools.perf.measure.device_metrics import DeviceMetrics
from trireme.tools.perf.measure.server_stats import ServerStats

_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen between two moments."""

    records: Records
    duration_ns: int
    server: ServerStats | None = None
    metrics: tuple[DeviceMetrics, ...] = ()
    client_share: float = 0.0
    """Processor time of the load's process, of the duration."""
    bounds_ns: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers that a report shows; times in nanoseconds."""

    request_count: int
    sequence_count: int
    delayed_count: int
    response_count: int
    duration_s: float
    batch_size: int
    mean_ns: int
    deviation_us: int | None
    """None for a single request."""
    percentiles_ns: dict[int, int]
    percentile: int | None
    request_ns: int
    send_ns: int
    receive_ns: int
    client_share: float
    server: ServerStats | None
    metrics: tuple[DeviceMetrics, ...]
    latencies_ns: npt.NDArray[np.int64]

    @property
    def throughput(self) -> float:
        """Inferences per second."""
        return self.request_count * self.batch_size / self.duration_s

    @property
    def response_throughput(self) -> float:
        return self.response_count / self.duration_s

    @property
    def sequence_throughput(self) -> float:
        return self.sequence_count / self.duration_s

    @property
    def stabilizing_ns(self) -> int:
        """The latency that is judged."""
        return self.mean_ns if self.percentile is None else self.percentiles_ns[self.percentile]


def summarize(windows: list[Window], batch_size: int, percentile: int | None) -> Summary | None:
    """All windows as one; None where no request ended in them."""
    records = windows[0].records.joined([window.records for window in windows[1:]])
    if not len(records):
        return None
    latencies = np.sort(records.latency_ns)
    mean = int(latencies.sum()) // len(latencies)
    deviation = None
    if len(latencies) > 1:
        deviation = int(
            math.sqrt(float(np.square((latencies - mean).astype(np.float64)).sum()) / (len(latencies) - 1)) / 1000
        )
    wanted = sorted({*_PERCENTILES, *(() if percentile is None else (percentile,))})
    return Summary(
        request_count=len(records),
        sequence_count=records.sequences,
        delayed_count=records.delayed,
        response_count=records.responses,
        duration_s=sum(window.duration_ns for window in windows) / 1e9,
        batch_size=batch_size,
        mean_ns=mean,
        deviation_us=deviation,
        percentiles_ns={n: int(latencies[int(n / 100 * (len(latencies) - 1) + 0.5)]) for n in wanted},
        percentile=percentile,
        request_ns=int(records.request_ns.mean()),
        send_ns=int(records.send_ns.mean()),
        receive_ns=int(records.receive_ns.mean()),
        client_share=sum(window.client_share for window in windows) / len(windows),
        server=_joined_server(windows),
        metrics=tuple(metrics for window in windows for metrics in window.metrics),
        latencies_ns=latencies,
    )


def _joined_server(windows: list[Window]) -> ServerStats | None:
    """Windows without a request, such as one that was interrupted at once, have none and add none."""
    joined = None
    for window in windows:
        if window.server is not None:
            joined = window.server if joined is None else joined.plus(window.server)
    return joined
