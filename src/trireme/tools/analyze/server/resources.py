"""Memory and utilisation of the server's machine while something is measured."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trireme.tools.perf.address import parse_address
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.measure.device_metrics import DeviceMetrics, merged, parse_page

_TIMEOUT_S = 5.0
_MEGABYTE = 1e6
_CPU = re.compile(r"^(nv_cpu_\w+)(?:\{[^}]*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resources:
    """What was in use: megabytes and percent."""

    machine: Mapping[str, float] = field(default_factory=dict)
    """By tag."""
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By accelerator, then by tag."""


class ResourceWatch:
    """Reads the server's metrics page every so often; a server of our own is asked through /proc for its memory."""

    def __init__(self, metrics_url: str, interval_s: float, process_id: int | None = None) -> None:
        self._address = parse_address(metrics_url, 8002)
        self._interval_s = interval_s
        self._process_id = process_id
        self._lock = threading.Lock()
        self._devices: list[DeviceMetrics] = []
        self._machine: list[dict[str, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def is_reachable(self) -> bool:
        try:
            self._page()
        except OSError:
            return False
        return True

    def start(self) -> None:
        """From now on."""
        with self._lock:
            self._devices, self._machine = [], []
        self._look()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="resources", daemon=True)
        self._thread.start()

    def stop(self) -> Resources:
        """What was seen since the start."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._look()
        with self._lock:
            return Resources(_machine(self._machine), _devices(self._devices))

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        values: dict[str, float] = {}
        try:
            page = self._page()
        except (OSError, PerfError):
            page = ""
        for name, value in _CPU.findall(page):
            values[name] = float(value)
        devices = parse_page(page)
        if self._process_id is not None:
            values["tree_bytes"] = tree_memory(self._process_id)
        with self._lock:
            self._machine.append(values)
            self._devices.append(devices)

    def _page(self) -> str:
        connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", self._address.base or "/metrics")
            response = connection.getresponse()
            page = response.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from None
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        return page


def tree_memory(process_id: int) -> float:
    """Bytes of a process and all it has started; shared pages are counted by their share where the kernel tells."""
    return float(sum(_memory(one) for one in _tree(process_id)))


def _tree(process_id: int) -> list[int]:
    found = [process_id]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(word) for word in children.read_text().split()]
            except OSError:
                continue
    return found


def _memory(process_id: int) -> int:
    for name, field_name in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            text = Path(f"/proc/{process_id}/{name}").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(field_name):
                return int(line.split()[1]) * 1024
    return 0


def _machine(looks: list[dict[str, float]]) -> dict[str, float]:
    found = {}
    used = [look.get("tree_bytes", look.get("nv_cpu_memory_used_bytes", 0.0)) for look in looks]
    if any(used):
        found["cpu_used_ram"] = max(used) / _MEGABYTE
    free = [
        look["nv_cpu_memory_total_bytes"] - look.get("nv_cpu_memory_used_bytes", 0.0)
        for look in looks
        if "nv_cpu_memory_total_bytes" in look
    ]
    if free:
        found["cpu_available_ram"] = min(free) / _MEGABYTE
    busy = [look["nv_cpu_utilization"] for look in looks[1:] if "nv_cpu_utilization" in look]
    if busy:  # the first look has the time before the load in it
        found["cpu_utilization"] = sum(busy) / len(busy) * 100
    return found


def _devices(looks: list[DeviceMetrics]) -> dict[str, dict[str, float]]:
    whole = merged(looks)
    found: dict[str, dict[str, float]] = {}
    for device, used in whole.used_bytes.items():
        entry = found.setdefault(device, {})
        entry["gpu_used_memory"] = used / _MEGABYTE
        if device in whole.total_bytes:
            entry["gpu_free_memory"] = (whole.total_bytes[device] - used) / _MEGABYTE
    for device, share in whole.utilization.items():
        found.setdefault(device, {})["gpu_utilization"] = share * 100
    for device, power in whole.power_w.items():
        found.setdefault(device, {})["gpu_power_usage"] = power
    return found
