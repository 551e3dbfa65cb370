"""What loading a compiled model gives, whatever its framework, and whether it is loaded onto NeuronCores."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, thread_share
from trireme.backends.neuron.cores import CoreShare
from trireme.backends.neuron.replicas import RunReplica
from trireme.backends.python.worker_device import device_of_worker
from trireme.devices.neuron import has_driver


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The replicas of an instance."""

    calls: Sequence[RunReplica]
    """One per slice that may run at the same time; on the CPU all are the same."""
    device: str
    """For the log."""
    fixed_rows: int | None = None
    """Rows that the file insists on; None where it takes any number."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What the loaders of all frameworks are told."""

    path: str
    config: Mapping[str, Any]
    share: CoreShare
    has_device: bool
    """Whether the model is to be loaded onto NeuronCores."""

    @property
    def cpu_thread_count(self) -> int:
        """Slices at a time on the CPU: more than its cores would only cut the batch finer, which costs and gains
        nothing."""
        return max(1, min(self.share.replica_count, thread_share()))

    @property
    def intra_op_thread_count(self) -> int:
        """Threads that each slice may use on the CPU."""
        return max(1, thread_share() // self.cpu_thread_count)

    def replicate(self, loaded: Sequence[RunReplica]) -> list[RunReplica]:
        """The calls in the order in which slices are dealt out: first one for every core, then the second round."""
        return list(loaded) * self.share.threads_per_core


def is_on_neuron_cores() -> bool:
    """Whether the server placed this process on NeuronCores, and they are real: a server may be told to act as if."""
    return device_of_worker().startswith("neuron") and has_driver()


def neuron_library(what: str, names: Sequence[str], *, is_required: bool) -> Any | None:
    """The first of these packages that is installed, imported: that alone makes frameworks know Neuron's operators.

    Raises ModelLoadError where it is required and none is there.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            continue
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ModelLoadError(f"the package '{name}' is installed but cannot be imported: {error}") from error
    if is_required:
        raise ModelLoadError(missing_library(f"this machine has NeuronCores, and {what}", names))
    return None


def missing_library(what: str, names: Sequence[str]) -> str:
    """The sentence about a package of the Neuron SDK that is needed and not installed."""
    packages = " or ".join(f"'{name}'" for name in names)
    return (
        f"{what} needs the package {packages}, which is not installed; install {names[-1].replace('_', '-')} from the "
        "package index that the AWS Neuron SDK's guide names"
    )
