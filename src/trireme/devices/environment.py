"""What a worker process runs on, and the variables that tell it so before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trireme.devices import cuda, gaudi, neuron
from trireme.devices.device import Device, DeviceKind
from trireme.devices.inventory import Inventory

DEVICE_VARIABLE = "TRIREME_DEVICE"
_CUDA_ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The device of one worker process."""

    kind: DeviceKind = "cpu"
    index: int = 0
    """Of a GPU, as the process numbers those it sees, which are all that the server sees."""
    units: tuple[int, ...] = ()
    """Modules of a Gaudi, or NeuronCores, as the machine numbers them; the process sees these alone."""
    gpu_count: int | None = None
    """How many GPUs the process may see; None: as many as it finds."""

    @property
    def device(self) -> str:
        """In the worker's own numbers: `cpu`, `cuda:1`, `hpu:0`, `neuron:0-3`."""
        if self.kind == "cuda":
            return f"cuda:{self.index}"
        if self.kind == "hpu":
            return "hpu:0"
        if self.kind == "neuron":
            return f"neuron:0-{len(self.units) - 1}" if len(self.units) > 1 else "neuron:0"
        return "cpu"

    @property
    def on_machine(self) -> str:
        """In the machine's numbers, for people."""
        if self.kind in ("hpu", "neuron"):
            noun = "Gaudi module" if self.kind == "hpu" else "NeuronCore"
            return f"{noun}{'s' if len(self.units) > 1 else ''} {ranges(self.units)}"
        return self.device

    def variables(self, base: Mapping[str, str]) -> dict[str, str]:
        """What comes on top of `base`. A variable that says how a device is used stays as `base` has it; those that
        say which devices a process sees are narrowed to what this process was given."""
        variables = {DEVICE_VARIABLE: self.device}
        if self.kind == "cuda":
            if cuda.VISIBLE not in base:
                variables |= _unless_set(base, {_CUDA_ORDER: "PCI_BUS_ID"})  # the inventory's, and nvidia-smi's
                if self.gpu_count is not None:
                    variables[cuda.VISIBLE] = ",".join(map(str, range(self.gpu_count)))
        elif self.kind == "hpu":
            variables[gaudi.VISIBLE] = ",".join(map(str, self.units))
            variables |= _unless_set(base, {"PT_HPU_LAZY_MODE": "1"})
        elif self.kind == "neuron":
            count = len(self.units)
            variables[neuron.VISIBLE] = ranges(self.units)
            sizes = ",".join(["1"] * count)
            variables |= _unless_set(base, {"NEURON_RT_NUM_CORES": str(count), "NEURONCORE_GROUP_SIZES": sizes})
        if self.gpu_count == 0:
            variables[cuda.VISIBLE] = ""
        return variables


def whole_device(device: Device, inventory: Inventory) -> Assignment:
    """All of a device for one process."""
    return Assignment(device.kind, device.index, device.units, gpus_to_see(device.kind, inventory))


def gpus_to_see(kind: DeviceKind, inventory: Inventory) -> int | None:
    """A process on a GPU sees all of the inventory's, and none sees any where `--devices` names none. A model on
    another device may otherwise look for GPUs by itself."""
    return inventory.gpu_count if kind == "cuda" or (inventory.is_given and not inventory.gpu_count) else None


def ranges(numbers: tuple[int, ...]) -> str:
    """`0-3,6`, as the Neuron runtime reads it."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _unless_set(base: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if name not in base}
