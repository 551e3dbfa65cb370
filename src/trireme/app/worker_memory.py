"""What the worker processes of a model use: memory, processor time, devices."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trireme.backends.python.host.backend import PythonBackend
from trireme.core.ports import Backend

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def resident_bytes(backend: Backend) -> int:
    """The resident memory of the backend's processes, added up; 0 where it has none, or where the system does not
    tell. Pages that workers share with each other count for each of them."""
    if not isinstance(backend, PythonBackend):
        return 0
    return sum(map(_resident_bytes_of, backend.worker_pids))


def devices_in_use(backend: Backend) -> Sequence[str]:
    """Those that the backend's processes say they compute on; none where they do not say."""
    return backend.devices if isinstance(backend, PythonBackend) else ()


def cpu_seconds(backend: Backend) -> float:
    """The processor time that the backend's processes have used; 0 where it has none, or nobody tells."""
    if not isinstance(backend, PythonBackend):
        return 0.0
    return sum(map(_cpu_ticks_of, backend.worker_pids)) / _TICKS_PER_S


def _cpu_ticks_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
        return int(fields[11]) + int(fields[12])  # in user mode and in the kernel
    except (OSError, IndexError, ValueError):
        return 0


def _resident_bytes_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):  # it has just ended, or there is no such file here
        return 0
