"""The table of models: a row for each version that is known, and for each model that is not loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trireme.config.model_config import ModelConfig
from trireme.console.figures import Figures
from trireme.registry.index import IndexEntry
from trireme.registry.lifecycle import READY
from trireme.registry.model import Model

Row = dict[str, Any]
Key = tuple[str, int]
"""Name and version; version 0 for a model that is not loaded."""


def key_of(entry: IndexEntry) -> Key:
    """The key of an entry of the repository's index."""
    return entry.name, int(entry.version or 0)


def absent_row(entry: IndexEntry) -> Row:
    """The row of what does not serve."""
    return {
        "name": entry.name,
        "version": entry.version,
        "state": entry.state or "NOT LOADED",
        "reason": entry.problem or entry.reason,
    }


class Fixed(NamedTuple):
    """What of a row stays the same for as long as the model is loaded."""

    backend: str
    instances: int
    device: str


def fixed_of(config: ModelConfig, devices: Sequence[str] = ()) -> Fixed:
    """What the configuration says for a row, and the model's processes of their devices."""
    device = spoken_devices(devices) if devices else device_text(config)
    return Fixed(config.backend or config.platform, instance_count(config), device)


def serving_row(
    entry: IndexEntry,
    model: Model,
    fixed: Fixed,
    figures: Figures,
    workers: tuple[int, int, int],
    memory_bytes: int,
) -> Row:
    """The row of a version that serves."""
    stats = model.stats
    worker_count, up_count, restart_count = workers
    return {
        "name": entry.name,
        "version": entry.version,
        "copy": stats.began_ns,
        "state": "DEGRADED" if entry.state == READY and up_count < worker_count else entry.state,
        "reason": entry.reason,
        "backend": fixed.backend,
        "instances": worker_count or fixed.instances,
        "up": up_count if worker_count else fixed.instances,
        "restarts": restart_count,
        "device": fixed.device,
        "memory": memory_bytes,
        "rps": round(figures.requests_per_s, 2),
        "p50": round(figures.p50_us),
        "p99": round(figures.p99_us),
        "batch": round(figures.batch_size, 2),
        "queue": stats.pending_count(),
        "errors": stats.error_count,
        "eps": round(figures.failures_per_s, 2),
        "total": stats.success_count,
    }


def instance_count(config: ModelConfig) -> int:
    """How many instances the configuration asks for; an ensemble has none."""
    return sum(group.count * max(1, len(group.gpus)) for group in config.instance_groups if not group.is_passive)


def device_text(config: ModelConfig) -> str:
    """Where the instances run, as the configuration says: `cpu`, `gpu 0, 1`."""
    if config.is_ensemble:
        return ""
    named = []
    for group in config.instance_groups:
        kind = group.kind.removeprefix("KIND_").lower()
        named.append(f"{kind} {', '.join(map(str, group.gpus))}" if group.gpus else kind)
    return ", ".join(dict.fromkeys(named)) or "cpu"


def spoken_devices(labels: Sequence[str]) -> str:
    """Devices in the words that configurations are shown in: `cuda:0` and `cuda:1` are `gpu 0, 1`."""
    numbers: dict[str, list[str]] = {}
    for label in labels:
        kind, _, number = label.partition(":")
        numbers.setdefault("gpu" if kind == "cuda" else kind, []).append(number)
    return ", ".join(f"{kind} {', '.join(found)}" if any(found) else kind for kind, found in numbers.items())
