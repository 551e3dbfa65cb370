"""`habana_frameworks.torch.hpu.random`: torch's own generators."""

from __future__ import annotations

import importlib
from typing import Any

torch: Any = importlib.import_module("torch")

manual_seed = manual_seed_all = torch.manual_seed
seed = seed_all = torch.seed
initial_seed = torch.initial_seed


def get_rng_state(device: Any = None) -> Any:
    """Of the CPU, whatever the device."""
    return torch.get_rng_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Of the CPU, whatever the device."""
    torch.set_rng_state(new_state)


__all__ = [
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
]
