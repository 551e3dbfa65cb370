"""Memory and utilisation of the server's machine while something is measured."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trireme.tools.analyze.metrics import MACHINE_RAM
from trireme.tools.client.errors import InputError
from trireme.tools.perf.address import parse_address
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.measure.device_metrics import DeviceMetrics, merged, parse_page
from trireme.tools.perf.wire.http1_responses import length_fault

_TIMEOUT_S = 5.0
_LARGEST_PAGE = 16 << 20
_MEGABYTE = 1e6
_MODEL = re.compile(r'^nv_\w+\{(?:[^}]*,)?model="([^"]*)"', re.MULTILINE)
_CPU = re.compile(r"^(nv_cpu_\w+)(?:\{[^}]*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resources:
    """What was in use: megabytes and percent."""

    machine: Mapping[str, float] = field(default_factory=dict)
    """By tag."""
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By accelerator, then by tag."""


@dataclass(slots=True)
class _Looks:
    """What one thread has seen, in its order."""

    machine: list[dict[str, float]] = field(default_factory=list)
    devices: list[DeviceMetrics] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)


class ResourceWatch:
    """Reads the server's metrics page every so often; the memory is that of its processes, by /proc, where they are on
    this machine, and else that of its whole machine."""

    def __init__(
        self,
        metrics_url: str | None,
        interval_s: float,
        process_id: int | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """No address: there is no page, and memory is all that is seen. Raises InputError for what is no address."""
        self._headers = dict(headers)
        try:
            self._address = None if metrics_url is None else parse_address(metrics_url, 8002)
        except PerfError as error:
            raise InputError(f"--triton-metrics-url: {error}") from None
        self._interval_s = interval_s
        self._process_id = process_id
        self._looks = _Looks()
        self._thread: threading.Thread | None = None

    def models(self) -> set[str] | None:
        """Those that the page names; None where there is no page."""
        try:
            return set(_MODEL.findall(self._page()))
        except OSError:
            return None

    @property
    def sees_devices(self) -> bool:
        """Whether the page has told of an accelerator since the start."""
        return any(look != DeviceMetrics() for look in self._looks.devices)

    def start(self) -> None:
        """From now on."""
        self._looks = _Looks()
        self._look(self._looks)
        self._thread = threading.Thread(target=self._run, args=[self._looks], name="resources", daemon=True)
        self._thread.start()

    def stop(self) -> Resources:
        """What was seen since the start."""
        self._looks.is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._look(self._looks)
        return Resources(_machine(self._looks.machine), _devices(self._looks.devices))

    def cancel(self) -> None:
        """Nobody wants to know any more; a server that does not answer is not waited for."""
        self._looks.is_over.set()
        self._thread = None

    def _run(self, looks: _Looks) -> None:
        while not looks.is_over.wait(self._interval_s):
            self._look(looks)

    def _look(self, looks: _Looks) -> None:
        values: dict[str, float] = {}
        try:
            page = self._page()
        except OSError:
            page = ""
        for name, value in _CPU.findall(page):
            with contextlib.suppress(ValueError):
                values[name] = float(value)
        devices = parse_page(page)
        if self._process_id is not None:
            values["tree_bytes"] = tree_memory(self._process_id)
        looks.machine.append(values)
        looks.devices.append(devices)

    def _page(self) -> str:
        if self._address is None:
            raise OSError("no address")
        connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", self._address.base or "/metrics", headers=self._headers)
            response = connection.getresponse()
            fault = length_fault(response.headers.get("Content-Length"))
            if fault and not response.chunked:
                raise OSError(fault)
            page = response.read(_LARGEST_PAGE).decode("utf-8", "replace")
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
        if not any("tree_bytes" in look for look in looks):
            found[MACHINE_RAM] = found["cpu_used_ram"]
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
