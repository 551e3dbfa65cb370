"""How much memory a device has for a cache, whatever its kind."""

from __future__ import annotations

import torch

from trireme.llm.executors.limits import DEFAULT_CACHE_BYTES
from trireme.llm.options import EngineOptions
from trireme.machine.host_memory import free_host_bytes

_RESERVE_BYTES = 2**30
"""Left on a device for what steps need in passing."""


def usable_bytes(device: torch.device, options: EngineOptions) -> int | None:
    """What is free for a model and its cache; None: nobody knows."""
    free, total = _free_and_total(device)
    return int(free - (1 - options.memory_share) * total) if total else free_host_bytes()


def cache_bytes(device: torch.device, options: EngineOptions) -> int:
    """On a device what its share has left; of the host's memory half of what is free, which is used as it is needed."""
    usable = usable_bytes(device, options) or 0
    _, total = _free_and_total(device)
    return usable - _RESERVE_BYTES if total else max(DEFAULT_CACHE_BYTES, usable // 2)


def _free_and_total(device: torch.device) -> tuple[int, int]:
    """Of a device's own memory: none where that is the host's, be it in place of a device that is not there."""
    if device.type == "cpu":
        return 0, 0
    free, total = getattr(torch, device.type).mem_get_info(device)
    return int(free), int(total)


def release(device: torch.device) -> None:
    """Gives back what PyTorch keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
