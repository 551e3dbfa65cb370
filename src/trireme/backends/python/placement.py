"""The instances that a configuration asks for: their names, kinds and devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trireme.config.compat_words import GAUDI, NEURON
from trireme.config.device_parameter import device_choice, device_preference
from trireme.config.model_config import ModelConfig
from trireme.core.errors import InvalidArgumentError
from trireme.devices import gaudi, neuron
from trireme.devices.inventory import Inventory
from trireme.devices.neuron import MOST_CORES
from trireme.devices.ownership import DeviceRequest

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
    config: ModelConfig, placements: Sequence[Placement], inventory: Inventory, compat: Collection[str] = ()
) -> dict[Placement, DeviceRequest]:
    """What each instance is to run on: as the parameter `device` says, or else the NeuronCores that the configuration
    names, or the GPU of its group. `compat` are the words that hold for the model. Raises InvalidArgumentError where
    NeuronCores cannot be shared out, and where there are none and nobody has asked for the CPU in their place."""
    choice = device_choice(config.message)
    if choice is not None and choice.kind == "neuron":
        if choice.first is None or choice.last is None:
            return dict.fromkeys(placements, DeviceRequest("neuron"))
        return _shares(config, placements, choice.first, choice.last)
    if choice is not None and choice.kind == "hpu":
        return dict.fromkeys(placements, DeviceRequest("hpu", units=_module(config, inventory, choice.first)))
    cores = _core_range(config) if choice is None else None
    if cores is not None and inventory.of_kind("neuron"):
        return _shares(config, placements, *cores)
    if cores is not None and NEURON not in compat:
        raise InvalidArgumentError(_no_cores(config, inventory, *cores))
    preferred = next((kind for kind in device_preference(config.message) if inventory.of_kind(kind)), "cpu")
    return {placement: _simple_request(placement, preferred) for placement in placements}


def stand_in_words(inventory: Inventory) -> frozenset[str]:
    """The words of `compat` that `--devices` says without saying them: who takes the machine for one without
    accelerators, or for one with accelerators that it has not, wants to see models run all the same."""
    if not inventory.is_given:
        return frozenset()
    if not inventory.accelerators:
        return frozenset((GAUDI, NEURON))
    kinds = {"hpu": (GAUDI, gaudi.has_driver), "neuron": (NEURON, neuron.has_driver)}
    return frozenset(word for kind, (word, is_real) in kinds.items() if inventory.of_kind(kind) and not is_real())


def _simple_request(placement: Placement, preferred: str) -> DeviceRequest:
    if placement.kind == "GPU":
        return DeviceRequest("cuda", placement.device_id)
    return DeviceRequest("hpu") if preferred == "hpu" else DeviceRequest()


def _no_cores(config: ModelConfig, inventory: Inventory, first: int, last: int) -> str:
    return (
        f"model '{config.name}' asks for NeuronCores {first} to {last} ({_FIRST_CORE}, {_LAST_CORE}), and this server "
        f"has none (its devices: {inventory.described()}). Start it with --devices=cpu to serve the model on the CPU, "
        f"or give the model's configuration the parameter 'device' with the value cpu"
    )


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
