"""The NeuronCores of one instance: its share of the model's range, and the variables that tell the Neuron runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.python.worker_device import DEVICE_VARIABLE
from trireme.devices.neuron import MOST_CORES, cores_of
from trireme.devices.neuron import VISIBLE as VISIBLE_CORES

CORE_COUNT = "NEURON_RT_NUM_CORES"
GROUP_SIZES = "NEURONCORE_GROUP_SIZES"
_INSTANCE_INDEX = re.compile(r".*_(\d+)")


@dataclass(frozen=True, slots=True)
class CoreShare:
    """Consecutive cores of the machine, numbered as the machine numbers them."""

    first: int
    count: int
    threads_per_core: int

    @property
    def last(self) -> int:
        """The last core, which belongs to the share."""
        return self.first + self.count - 1

    @property
    def replica_count(self) -> int:
        """How many slices of a batch may run at the same time."""
        return self.count * self.threads_per_core

    @property
    def text(self) -> str:
        """As the Neuron runtime reads a range."""
        return f"{self.first}-{self.last}"


def core_share(
    config: Mapping[str, Any], parameters: Parameters, instance_name: str, environ: Mapping[str, str]
) -> CoreShare:
    """The cores of the instance of that name; raises ModelLoadError where the configuration cannot be met.

    Where the server has placed this process on NeuronCores, these are its cores; else its share of the range.
    """
    groups = config["instance_group"]
    if len(groups) != 1:
        raise _refusal(config, f"supports only a single instance group, got {len(groups)}")
    threads = parameters.whole("NUM_THREADS_PER_CORE", least=1) or 1
    first, last = parameters.whole("NEURON_CORE_START_INDEX"), parameters.whole("NEURON_CORE_END_INDEX")
    placed = _placed_cores(environ)
    if placed:
        return CoreShare(placed[0], len(placed), threads)
    if first is None or last is None:
        raise _refusal(
            config,
            "needs the parameters 'NEURON_CORE_START_INDEX' and 'NEURON_CORE_END_INDEX'; 'trireme neuron-model' writes "
            "them",
        )
    if last < first:
        raise _refusal(
            config,
            "needs NEURON_CORE_END_INDEX to be greater than or equal to NEURON_CORE_START_INDEX, "
            f"got {first} to {last}",
        )
    if last >= MOST_CORES:
        raise _refusal(config, f"has NEURON_CORE_END_INDEX {last}, and no machine has so many NeuronCores")
    instances, total = int(groups[0]["count"]), last - first + 1
    if instances > total:
        raise _refusal(
            config,
            f"has {instances} instances for {total} NeuronCores ({first} to {last}); "
            "lower the count of its instance_group, or widen the range",
        )
    per_instance = total // instances
    return CoreShare(first + _instance_index(config, instance_name, instances) * per_instance, per_instance, threads)


def announce(share: CoreShare, environ: MutableMapping[str, str], *, is_tensorflow: bool) -> None:
    """Sets the runtime's variables, which count only until its library is loaded. Where the server has placed this
    process on NeuronCores it has set the range already."""
    if not _placed_cores(environ):
        environ[VISIBLE_CORES] = share.text
    environ.pop(CORE_COUNT, None)  # the runtime takes one of the two, and the range says more
    if is_tensorflow:
        environ[GROUP_SIZES] = ",".join(["1"] * share.count)  # one model per core, as releases for Inf1 want it


def _placed_cores(environ: Mapping[str, str]) -> list[int]:
    """The cores that the server gave this process; none where it gave none."""
    text = environ.get(VISIBLE_CORES, "")
    return sorted(cores_of(text)) if text and environ.get(DEVICE_VARIABLE, "").startswith("neuron") else []


def _instance_index(config: Mapping[str, Any], instance_name: str, instances: int) -> int:
    if instances == 1:
        return 0
    match = _INSTANCE_INDEX.fullmatch(instance_name)
    if match is None or int(match.group(1)) >= instances:
        raise _refusal(config, f"expects instance names that end with '_<index>', got '{instance_name}'")
    return int(match.group(1))


def _refusal(config: Mapping[str, Any], what: str) -> ModelLoadError:
    return ModelLoadError(f"model '{config['name']}' {what}")
