"""What the GPU lets kernels do: how one is launched behind the other, and how much of the loop is read ahead."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

_IS_INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))
_LEAST, _OVERLAPPING, _WITH_FP8 = (8, 0), (9, 0), (8, 9)
"""Compute capabilities."""


def why_not(device: torch.device) -> str:
    """What of a GPU the kernels do not cover; "": they do."""
    if torch.version.hip is not None:
        return "AMD's GPUs"
    capability = torch.cuda.get_device_capability(device)
    return "" if capability >= _LEAST else f"GPUs of compute capability {_named(capability)}, only 8.0 or later"


def why_not_fp8(device: torch.device) -> str:
    """The same of numbers of eight bits with an exponent."""
    capability = torch.cuda.get_device_capability(device)
    return "" if capability >= _WITH_FP8 else f"float8 on compute capability {_named(capability)}, only on 8.9 or later"


def overlap() -> dict[str, bool]:
    """Launch options of a kernel that may be on its processors before the one before it has ended, and waits there.

    Every kernel between two such that depend on each other has to wait as well.
    """
    if _IS_INTERPRETED or not _overlaps(torch.cuda.current_device()):
        return {"OVERLAPS": False}
    return {"OVERLAPS": True, "launch_pdl": True}


def stages(wanted: int, bytes_each: int) -> int:
    """So many parts of a loop read ahead, or as many as the shared memory of a program has room for."""
    return wanted if _IS_INTERPRETED else max(1, min(wanted, _most_stages(torch.cuda.current_device(), bytes_each)))


@functools.cache
def _overlaps(device: int) -> bool:
    return torch.cuda.get_device_capability(device) >= _OVERLAPPING


@functools.cache
def _most_stages(device: int, bytes_each: int) -> int:
    properties: Any = torch.cuda.get_device_properties(device)  # PyTorch's stubs do not have all of them
    room = properties.shared_memory_per_block_optin // bytes_each
    return int(room) if _overlaps(device) else int(room) + 1  # older ones have the last part in registers


def _named(capability: tuple[int, int]) -> str:
    return "{}.{}".format(*capability)
