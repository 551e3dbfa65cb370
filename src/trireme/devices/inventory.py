"""What this machine computes with: the processor and its accelerators, or what `--devices` says instead."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trireme.core.errors import ServingError
from trireme.devices import cuda, gaudi, neuron
from trireme.devices.cpu import find_cpu
from trireme.devices.device import Device, DeviceKind
from trireme.devices.device_spec import simulated_devices

__all__ = ["SPEC_VARIABLE", "Device", "DeviceKind", "DeviceSearch", "Inventory", "discover"]

log = logging.getLogger(__name__)

SPEC_VARIABLE = "TRIREME_DEVICES"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices that models may be placed on; the first is the processor."""

    devices: tuple[Device, ...]
    is_given: bool = False
    """Whether these are what somebody says of the machine, in place of what it has."""

    def of_kind(self, kind: str) -> tuple[Device, ...]:
        """Those of one kind, by index."""
        return tuple(device for device in self.devices if device.kind == kind)

    @property
    def accelerators(self) -> tuple[Device, ...]:
        """Everything but the processor."""
        return tuple(device for device in self.devices if device.kind != "cpu")

    @property
    def gpu_count(self) -> int:
        """How many devices instance groups of kind KIND_GPU may name."""
        return len(self.of_kind("cuda"))

    def described(self) -> str:
        """All of them in a few words, for messages: `cpu, cuda:0, cuda:1`."""
        return ", ".join(device.label for device in self.devices)


def discover(spec: str | None, environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Inventory:
    """The machine's devices; with a spec, or else with the variable TRIREME_DEVICES, those that it stands for.

    Raises InvalidArgumentError for a malformed spec. Where the file system shows no accelerator this takes about a
    millisecond; otherwise the vendors' tools are asked, each in a process that ends again.
    """
    variables = os.environ if environ is None else environ
    given = spec if spec is not None else variables.get(SPEC_VARIABLE)
    if given is not None and given.strip():
        return Inventory((find_cpu(), *simulated_devices(given)), is_given=True)
    return Inventory(
        (
            find_cpu(),
            *cuda.find_gpus(variables, root),
            *gaudi.find_hpus(variables, root),
            *neuron.find_neuron_devices(variables, root),
        )
    )


class DeviceSearch:
    """A discovery that has begun: where tools have to be asked, a thread asks them while its owner does other work."""

    def __init__(self, spec: str | None) -> None:
        self._spec = spec
        self._outcome: Inventory | ServingError | None = None
        self._thread: threading.Thread | None = None
        if cuda.has_driver() or gaudi.has_driver() or neuron.has_driver():
            self._thread = threading.Thread(target=self._search, name="device-search", daemon=True)
            self._thread.start()

    def result(self) -> Inventory:
        """What was found; raises InvalidArgumentError for a malformed spec."""
        if self._thread is not None:
            self._thread.join()
        else:
            self._search()
        if isinstance(self._outcome, Inventory):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def _search(self) -> None:
        try:
            self._outcome = discover(self._spec)
        except ServingError as error:
            self._outcome = error
        except Exception:  # whatever a driver in trouble does, models can still run on the processor
            log.exception("the search for devices failed; the server works with the processor alone")
            self._outcome = Inventory((find_cpu(),))
