"""A program, run in a process of its own: tells what NVML knows of the GPUs, once for every line it reads.

NVML stays out of the server: its library costs tens of megabytes, may hang with a driver in trouble, and cannot be
unloaded. Each answer is one line of JSON, an object for each GPU in the driver's order; what a GPU does not tell is
left out. The program ends when its input does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Answers until nobody asks."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        sys.exit(f"NVML cannot be used: {error}")
    for _ in sys.stdin:
        print(json.dumps([facts_of(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]), flush=True)


def facts_of(nvml: Any, index: int) -> dict[str, Any]:
    """What one GPU tells of itself."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = told(nvml, lambda handle: memory_of(nvml, handle), handle)
    usage = told(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    facts = {
        "uuid": told(nvml, nvml.nvmlDeviceGetUUID, handle),
        "name": told(nvml, nvml.nvmlDeviceGetName, handle),
        "memory_total_bytes": None if memory is None else int(memory.total),
        "memory_used_bytes": None if memory is None else int(memory.used),
        "utilization": None if usage is None else usage.gpu / 100,
        "power_watts": scaled(told(nvml, nvml.nvmlDeviceGetPowerUsage, handle)),
        "power_limit_watts": scaled(told(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        "energy_joules": scaled(told(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
    }
    return {key: text(value) for key, value in facts.items() if value is not None}


def memory_of(nvml: Any, handle: Any) -> Any:
    """Without what the driver keeps for itself, as nvidia-smi counts; old drivers and libraries add that."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except (AttributeError, TypeError, nvml.NVMLError):
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def told(nvml: Any, question: Callable[[Any], Any], handle: Any) -> Any:
    """The answer, or None where this GPU has none."""
    try:
        return question(handle)
    except nvml.NVMLError:
        return None


def scaled(thousandths: int | None) -> float | None:
    return None if thousandths is None else thousandths / 1000


def text(value: Any) -> Any:
    """Old releases of the library answer with bytes."""
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
