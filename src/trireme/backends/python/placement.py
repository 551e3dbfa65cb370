"""The instances that a configuration asks for: their names, kinds and devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trireme.config.device_parameter import device_choice
from trireme.config.model_config import ModelConfig
from trireme.core.errors import InvalidArgumentError
from trireme.devices.inventory import Inventory
from trireme.devices.neuron import MOST_CORES
from trireme.devices.ownership import DeviceRequest

_NAMES_HPU = re.compile(rb"""habana_frameworks|optimum\.habana|["']hpu(?::\d+)?["']""")
_FIRST_CORE, _LAST_CORE = "NEURON_CORE_START_INDEX", "NEURON_CORE_END_INDEX"


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


def device_requests(
    config: ModelConfig, placements: Sequence[Placement], inventory: Inventory, source_dir: Path | None
) -> dict[Placement, DeviceRequest]:
    """What each instance is to run on: as the parameter `device` says, or else the GPU of its group, or the
    accelerator that the model gives itself away to use. `source_dir` holds the model's own code, where it has some.
    Raises InvalidArgumentError where NeuronCores cannot be shared out."""
    choice = device_choice(config.message)
    if choice is not None and choice.kind == "neuron":
        if choice.first is None or choice.last is None:
            return dict.fromkeys(placements, DeviceRequest("neuron"))
        return _shares(config, placements, choice.first, choice.last)
    if choice is not None and choice.kind == "hpu":
        return dict.fromkeys(placements, DeviceRequest("hpu", units=_module(config, inventory, choice.first)))
    if choice is None and inventory.of_kind("neuron"):
        cores = _core_range(config)
        if cores is not None:
            return _shares(config, placements, *cores)
    uses_hpu = choice is None and bool(inventory.of_kind("hpu")) and source_dir is not None and names_hpu(source_dir)
    return {placement: _simple_request(placement, uses_hpu) for placement in placements}


def names_hpu(source_dir: Path) -> bool:
    """Whether a Python file of the folder is written for Gaudi: such a model places itself, whatever its kind says."""
    return any(_NAMES_HPU.search(path.read_bytes()) for path in sorted(source_dir.glob("*.py")))


def _simple_request(placement: Placement, uses_hpu: bool) -> DeviceRequest:
    if placement.kind == "GPU":
        return DeviceRequest("cuda", placement.device_id)
    return DeviceRequest("hpu") if uses_hpu else DeviceRequest()


def _module(config: ModelConfig, inventory: Inventory, index: int | None) -> tuple[int, ...] | None:
    """The module that the driver knows the Gaudi of this index by."""
    if index is None:
        return None
    for device in inventory.of_kind("hpu"):
        if device.index == index:
            return device.units
    raise InvalidArgumentError(
        f"model '{config.name}' asks for device 'hpu:{index}', which is not among the server's devices: "
        f"{inventory.described()}. Change or remove the parameter 'device' of its configuration"
    )


def _shares(
    config: ModelConfig, placements: Sequence[Placement], first: int, last: int
) -> dict[Placement, DeviceRequest]:
    """Equal shares of a range of cores, in the order of the instances."""
    if last >= MOST_CORES:
        raise InvalidArgumentError(
            f"model '{config.name}' asks for NeuronCores {first} to {last}, and no machine has so many"
        )
    each = (last - first + 1) // len(placements)
    if each < 1:
        raise InvalidArgumentError(
            f"model '{config.name}' has {len(placements)} instances for NeuronCores {first} to {last}; lower the count "
            "of its instance_group, or widen the range"
        )
    starts = range(first, last + 1, each)
    return {
        placement: DeviceRequest("neuron", units=tuple(range(start, start + each)))
        for placement, start in zip(placements, starts, strict=False)
    }


def _core_range(config: ModelConfig) -> tuple[int, int] | None:
    """As the generator of Neuron models writes it into the parameters; None where it is not there or no range."""
    parameters = config.message.parameters
    texts = [parameters[name].string_value for name in (_FIRST_CORE, _LAST_CORE) if name in parameters]
    if len(texts) != 2 or not all(text.strip().isdigit() for text in texts):
        return None
    first, last = map(int, texts)
    return (first, last) if first <= last else None
