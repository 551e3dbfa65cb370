"""The processor: how many cores this process may use, and what it is called."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trireme.devices.device import Device

_READ_BYTES = 4096  # the first core's entry; there may be hundreds


def core_count(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores this process may use: its affinity, and a container's quota where there is one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = quota_file.read_text().split()
        cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores


def find_cpu(proc: Path = Path("/proc")) -> Device:
    """The processor as one device."""
    return Device("cpu", 0, _name(proc / "cpuinfo"), "cpu", _memory_bytes(proc / "meminfo"), core_count(), False, False)


def _name(cpuinfo: Path) -> str:
    with contextlib.suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as file:
        for line in file.read(_READ_BYTES).splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    return os.uname().machine


def _memory_bytes(meminfo: Path) -> int | None:
    try:
        first = meminfo.read_text().split("\n", 1)[0].split()
        return int(first[1]) * 1024 if first[0] == "MemTotal:" else None
    except (OSError, ValueError, IndexError):
        return None
