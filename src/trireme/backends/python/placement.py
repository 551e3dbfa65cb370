"""The instances that a configuration asks for: their names, kinds and devices."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.config.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Placement:
    """One instance to be."""

    name: str
    """`<group>_<index>`."""
    kind: str
    """`CPU`, `GPU` or `MODEL`."""
    device_id: int
    is_passive: bool = False
    """Brought up, and given no requests."""


def placements_of(config: ModelConfig) -> list[Placement]:
    """Every instance of every group, in order; a group on several GPUs has `count` of them on each."""
    placements = []
    for group in config.instance_groups:
        kind = group.kind.removeprefix("KIND_")
        devices = group.gpus if kind == "GPU" and group.gpus else (0,)
        index = 0
        for _ in range(max(1, group.count)):
            for device in devices:
                placements.append(Placement(f"{group.name}_{index}", kind, device, group.is_passive))
                index += 1
    return placements or [Placement(f"{config.name}_0", "CPU", 0)]
