"""One device of the machine, as the rest of the server speaks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda", "hpu", "neuron"]
EXCLUSIVE_KINDS = frozenset({"hpu", "neuron"})
"""A process that opens such a device keeps every other process out."""


@dataclass(frozen=True, slots=True)
class Device:
    """The processor, or one accelerator."""

    kind: DeviceKind
    index: int
    """Its number among the devices of its kind that the server may use."""
    name: str
    uuid: str
    """What metrics call it."""
    memory_bytes: int | None
    """None where nobody knows."""
    core_count: int
    """What can be given out of it singly: NeuronCores, processor cores; 1 for other accelerators."""
    is_exclusive: bool
    is_simulated: bool
    units: tuple[int, ...] = ()
    """What its ownership is counted in, as its driver numbers them: the module of a Gaudi, the cores of a Neuron
    device; empty for devices that processes share."""

    @property
    def label(self) -> str:
        """As configurations and messages write it: `cuda:0`."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"
