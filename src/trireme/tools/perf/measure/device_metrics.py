"""The server's metrics page: what its devices did meanwhile."""

from __future__ import annotations

import http.client
import re
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trireme.tools.perf.address import parse_address
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.options import MetricsOptions
from trireme.tools.perf.wire.http1_responses import length_fault

NAMES = {
    "utilization": "nv_gpu_utilization",
    "power_w": "nv_gpu_power_usage",
    "used_bytes": "nv_gpu_memory_used_bytes",
    "total_bytes": "nv_gpu_memory_total_bytes",
}
_SAMPLE = re.compile(r'^(\w+)\{[^}]*gpu_uuid="([^"]*)"[^}]*\}\s+(\S+)', re.MULTILINE)

PerDevice = dict[str, float]
Combine = Callable[[list[float]], float]


@dataclass(frozen=True, slots=True)
class DeviceMetrics:
    """One look at the page, by the device's name."""

    utilization: PerDevice = field(default_factory=dict)
    power_w: PerDevice = field(default_factory=dict)
    used_bytes: PerDevice = field(default_factory=dict)
    total_bytes: PerDevice = field(default_factory=dict)


def parse_page(page: str) -> DeviceMetrics:
    """The samples of every device."""
    metrics = DeviceMetrics()
    places = {name: getattr(metrics, key) for key, name in NAMES.items()}
    for name, device, value in _SAMPLE.findall(page):
        if name in places:
            places[name][device] = float(value)
    return metrics


def merged(looks: Iterable[DeviceMetrics]) -> DeviceMetrics:
    """Averages of utilization and power, the largest memory used, the first total."""
    all_looks = list(looks)
    return DeviceMetrics(
        _each([look.utilization for look in all_looks], lambda values: sum(values) / len(values)),
        _each([look.power_w for look in all_looks], lambda values: sum(values) / len(values)),
        _each([look.used_bytes for look in all_looks], max),
        _each([look.total_bytes for look in all_looks], lambda values: values[0]),
    )


def _each(maps: list[PerDevice], combine: Combine) -> PerDevice:
    devices = sorted({device for one in maps for device in one})
    return {device: combine([one[device] for one in maps if device in one]) for device in devices}


class MetricsPoller:
    """Reads the page every so often while a level is measured."""

    def __init__(self, options: MetricsOptions) -> None:
        self._address = parse_address(options.url, 8002)
        self._url = options.url
        self._interval_s = options.interval_ms / 1000
        self._looks: list[DeviceMetrics] = []
        self._failure: PerfError | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()

    def start(self) -> None:
        """The first look is done when this returns; raises PerfError where the page cannot be reached."""
        self._look()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take(self) -> tuple[DeviceMetrics, ...]:
        """The looks since the last time; raises PerfError where they have failed."""
        if self._failure is not None:
            raise self._failure
        looks, self._looks = self._looks, []
        return tuple(looks)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._look()
            except PerfError as error:
                self._failure = error
                return

    def _look(self) -> None:
        connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=10)
        try:
            connection.request("GET", self._address.base or "/metrics")
            response = connection.getresponse()
            fault = length_fault(response.headers.get("Content-Length"))
            if fault and not response.chunked:
                raise PerfError(f"Metrics endpoint {self._url} answered with what cannot be read: {fault}")
            page = response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            raise PerfError(f"Unable to connect to Metrics endpoint {self._url}") from None
        finally:
            connection.close()
        if response.status != 200:
            raise PerfError(f"Metrics endpoint {self._url} answered with status {response.status}")
        try:
            metrics = parse_page(page)
        except ValueError as error:
            raise PerfError(f"Metrics endpoint {self._url} answered with no page of metrics: {error}") from None
        for key, name in NAMES.items():
            if not getattr(metrics, key) and name not in self._warned:
                self._warned.add(name)
                print(f"WARNING: Unable to parse '{name}' metric.", file=sys.stderr)
        self._looks.append(metrics)
