"""How much memory a device has for a cache, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trireme.llm.executors.limits import DEFAULT_CACHE_BYTES
from trireme.llm.options import EngineOptions
from trireme.machine.host_memory import free_host_bytes

_RESERVE_BYTES = 2**30
"""Left on a device for what steps need in passing."""
_SLACK = 0.05
"""The part of a device that stays free where others have taken so much that a model's share is not there."""


@dataclass(frozen=True, slots=True)
class _DeviceMemory:
    """A device's own memory, in bytes."""

    free: int
    total: int
    own: int
    """What this process has taken."""

    def usable(self, options: EngineOptions) -> int:
        """What is left to this process."""
        if options.cache_share is not None:
            return self.free
        share = options.memory_share
        return int(min(share * self.total - self.own, self.free - min(1 - share, _SLACK) * self.total))


def usable_bytes(device: torch.device, options: EngineOptions) -> int | None:
    """What is free for a model and its cache; None: nobody knows."""
    memory = _memory_of(device)
    return memory.usable(options) if memory is not None else free_host_bytes()


def what_is_usable(device: torch.device, options: EngineOptions, whom: str = "it") -> str:
    """`usable_bytes` of a device in words, with a place for the number."""
    if options.cache_share is not None:
        return f"{device} has {{}} free for {whom}"
    return f"{options.memory_share:.0%} of {device} leave {{}} for {whom} (memory_share)"


def cache_bytes(device: torch.device, options: EngineOptions, reserve_bytes: int = _RESERVE_BYTES) -> int:
    """On a device what its share has left; of the host's memory half of what is free, which is used as it is needed."""
    memory = _memory_of(device)
    if memory is None:
        return max(DEFAULT_CACHE_BYTES, (free_host_bytes() or 0) // 2)
    room = memory.usable(options) - reserve_bytes
    return room if options.cache_share is None else int(options.cache_share * room)


def _memory_of(device: torch.device) -> _DeviceMemory | None:
    """None where that is the host's, be it in place of a device that is not there."""
    if device.type == "cpu":
        return None
    free, total = getattr(torch, device.type).mem_get_info(device)
    if not total:
        return None
    own = torch.cuda.memory_reserved(device) if device.type == "cuda" else total - free
    return _DeviceMemory(int(free), int(total), int(own))


def release(device: torch.device) -> None:
    """Gives back what PyTorch keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
