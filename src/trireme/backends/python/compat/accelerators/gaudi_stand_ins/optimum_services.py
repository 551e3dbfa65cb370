"""`optimum.habana.utils`: versions, seeds, memory."""

from __future__ import annotations

import importlib
from typing import Any

OPTIMUM_HABANA_VERSION = "1.18.0"
"""The releases whose names the stand-ins have."""
HABANA_FRAMEWORKS_VERSION = "1.21.0"

__all__ = [
    "check_habana_frameworks_min_version",
    "check_habana_frameworks_version",
    "check_optimum_habana_min_version",
    "get_habana_frameworks_version",
    "get_hpu_memory_stats",
    "set_seed",
    "warmup_inference_steps_time_adjustment",
]


def set_seed(seed: int) -> None:
    """Of Python, numpy and torch."""
    importlib.import_module("transformers").set_seed(seed)


def get_hpu_memory_stats(device: Any = None) -> dict[str, float]:
    """By the names that the real ones have, in gigabytes."""
    names = ("memory_allocated (GB)", "max_memory_allocated (GB)", "total_memory_available (GB)")
    return dict.fromkeys(names, 0.0)


def get_habana_frameworks_version() -> Any:
    """Has `major`, `minor` and `micro`."""
    return _version(HABANA_FRAMEWORKS_VERSION)


def check_habana_frameworks_version(req_version: str) -> bool:
    """Whether it is this release, the last number left aside."""
    present, wanted = get_habana_frameworks_version(), _version(req_version)
    return bool((present.major, present.minor) == (wanted.major, wanted.minor))


def check_habana_frameworks_min_version(min_version: str) -> bool:
    """Whether it is this release or a later one."""
    return bool(get_habana_frameworks_version() >= _version(min_version))


def check_optimum_habana_min_version(min_version: str) -> None:
    """Raises ImportError where the model wants a later one."""
    if _version(OPTIMUM_HABANA_VERSION) < _version(min_version):
        raise ImportError(
            f"this model wants optimum-habana {min_version} or later, and the CPU's stand-in for it is like "
            f"{OPTIMUM_HABANA_VERSION}"
        )


def warmup_inference_steps_time_adjustment(
    start_time_after_warmup: Any, start_time_after_inference_steps_time_after_warmup: Any, *_steps: Any
) -> Any:
    """No time was spent on compiling graphs."""
    return start_time_after_warmup


def _version(text: str) -> Any:
    return importlib.import_module("packaging.version").Version(text)
