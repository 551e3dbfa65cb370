"""`optimum.habana.checkpoint_utils`: where a model's files are, and what only several HPUs at once need."""

from __future__ import annotations

import importlib
import os
from typing import Any

_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt"]

__all__ = [
    "get_ds_injection_policy",
    "get_repo_root",
    "model_is_optimized",
    "model_on_meta",
    "write_checkpoints_json",
]


def get_repo_root(model_name_or_path: str, local_rank: int = -1, token: str | None = None) -> str:
    """The model's folder, out of the hub where it is none."""
    if os.path.isdir(model_name_or_path):
        return model_name_or_path
    hub = importlib.import_module("huggingface_hub")
    return str(hub.snapshot_download(model_name_or_path, token=token, allow_patterns=_PATTERNS))


def model_is_optimized(config: Any) -> bool:
    """No model has a form of its own for the CPU."""
    return False


def model_on_meta(config: Any) -> bool:
    """Weights are loaded where they are used."""
    return False


def get_ds_injection_policy(config: Any) -> dict[Any, Any]:
    """Nothing is split over devices."""
    return {}


def write_checkpoints_json(*_args: Any, **_options: Any) -> None:
    """Raises: this is for a model that is split over several HPUs."""
    raise RuntimeError(
        "a model that is split over several HPUs runs on a Gaudi only; unset WORLD_SIZE to use one device"
    )
