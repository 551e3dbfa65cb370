"""The device a model will run on, and the memory that it has free now."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.core.errors import ServingError
from trireme.devices import nvml
from trireme.devices.inventory import Device, Inventory, discover
from trireme.devices.tool_run import ToolError
from trireme.machine.host_memory import free_host_bytes
from trireme.tools.deploy.options import DeployError, DeployOptions

_KINDS = ("cpu", "cuda", "hpu")
_PREFERENCE = ("cuda", "hpu")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device, and what it can still hold."""

    device: str
    """`cpu`, `cuda:0`."""
    free_bytes: int | None
    """None where nobody knows."""
    note: str = ""
    """What to say behind the number."""


def device_memory(options: DeployOptions, devices: str | None = None) -> DeviceMemory:
    """The device that was asked for, or the best there is; raises DeployError where it is not there. `devices` stands
    in for those of the machine, as the server's flag does."""
    try:
        device = _chosen(options.device, discover(devices))
    except ServingError as error:  # those words cannot be read
        raise DeployError(error.message) from None
    if options.memory_bytes is not None:
        return DeviceMemory(device.label, options.memory_bytes, f" (given by --memory: {options.memory_bytes:,} bytes)")
    if device.kind == "cpu":
        return DeviceMemory(device.label, free_host_bytes())
    free_bytes = _free_on_gpu(device) if device.kind == "cuda" else None
    if free_bytes is not None:
        return DeviceMemory(device.label, free_bytes)
    return DeviceMemory(device.label, device.memory_bytes, " (all of it, whoever else is there)")


def _chosen(wanted: str, inventory: Inventory) -> Device:
    """The first of the best kind there is, or the one that was named."""
    if wanted == "auto":
        return next((device for kind in _PREFERENCE for device in inventory.of_kind(kind)), inventory.devices[0])
    kind, _, index = wanted.partition(":")
    if kind not in _KINDS or (index and not index.isdecimal()):
        raise DeployError(f"--device '{wanted}' is none of auto, cpu, cuda, cuda:1, hpu, hpu:1{_neuron_hint(kind)}")
    for device in inventory.of_kind(kind):
        if device.index == int(index or 0):
            return device
    raise DeployError(f"--device {wanted}: this machine has no such device; it has {inventory.described()}")


def _neuron_hint(kind: str) -> str:
    return "; Neuron devices run compiled models, see 'trireme neuron-model'" if kind == "neuron" else ""


def _free_on_gpu(gpu: Device) -> int | None:
    """What the driver says; None where it cannot be asked, as for a GPU that is stood in for."""
    if gpu.is_simulated or not nvml.is_installed():
        return None
    try:
        process = nvml.NvmlProcess()
    except ToolError:
        return None
    try:
        told = next((facts for facts in process.ask() if facts.get("uuid") == gpu.uuid), {})
        return int(told["memory_total_bytes"]) - int(told["memory_used_bytes"])
    except (ToolError, KeyError):
        return None
    finally:
        process.close()
