"""AWS Inferentia and Trainium: Neuron devices, their cores, and which NEURON_RT_VISIBLE_CORES leaves to the server."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from trireme.devices.device import Device
from trireme.devices.tool_run import ToolError, run_tool

log = logging.getLogger(__name__)

VISIBLE = "NEURON_RT_VISIBLE_CORES"
MOST_CORES = 1 << 16
"""Far more than a machine has; a range that goes beyond is a slip of the pen."""
TOOLS_FOLDER = Path("/opt/aws/neuron/bin")
_SYSFS = "sys/devices/virtual/neuron_device"


class Chip(NamedTuple):
    """One Neuron device with all of its cores."""

    number: int
    uuid: str
    memory_bytes: int | None
    cores: tuple[int, ...]
    """As the runtime numbers the cores of the whole machine."""


def has_driver(root: Path = Path("/")) -> bool:
    """Whether the system shows a Neuron device; one look at the file system."""
    return bool(_device_numbers(root))


def find_neuron_devices(environ: Mapping[str, str], root: Path = Path("/")) -> list[Device]:
    """The devices with a core that a process with these variables may use, each with such cores alone."""
    if not has_driver(root):
        return []
    devices = visible_devices(_chips(root), environ.get(VISIBLE))
    return [_named(device, root) for device in devices]


def visible_devices(chips: list[Chip], visible: str | None) -> list[Device]:
    """What the variable, a list of cores and ranges of them, leaves."""
    allowed = None if visible is None or not visible.strip() else cores_of(visible)
    devices = []
    for chip in chips:
        cores = tuple(core for core in chip.cores if allowed is None or core in allowed)
        if cores:
            name = "Neuron device"
            devices.append(
                Device("neuron", chip.number, name, chip.uuid, chip.memory_bytes, len(cores), True, False, cores)
            )
    return devices


def cores_of(text: str) -> set[int]:
    """`0-3,6` as numbers; a part that is none of these counts for nothing, as it does for the runtime."""
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            cores.update(range(int(first), min(int(last or first), MOST_CORES) + 1))
    return cores


def chips_of_ls(text: str) -> list[Chip]:
    """What `neuron-ls --json-output` printed; raises ToolError."""
    try:
        told: Any = json.loads(text)
        entries: list[Any] = told["neuron_devices"] if isinstance(told, dict) else told
        chips: list[Chip] = []
        for entry in sorted(entries, key=lambda entry: int(entry["neuron_device"])):
            count, taken = int(entry["nc_count"]), sum(len(chip.cores) for chip in chips)
            cores = tuple(entry.get("neuroncore_ids") or range(taken, taken + count))
            index = int(entry["neuron_device"])
            chips.append(Chip(index, f"NEURON-{entry.get('bdf') or index}", entry.get("memory_size"), cores))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"neuron-ls printed what is not understood ({error!r})") from error
    return chips


def tool_path(name: str) -> str:
    """Where the tool is: on the path, or where its package puts it."""
    return shutil.which(name) or str(TOOLS_FOLDER / name)


def _chips(root: Path) -> list[Chip]:
    try:
        return chips_of_ls(run_tool([tool_path("neuron-ls"), "--json-output"]))
    except ToolError as error:
        log.warning("the memory of the Neuron devices is not known, since %s", error)
    chips: list[Chip] = []
    for number in _device_numbers(root):
        taken = sum(len(chip.cores) for chip in chips)
        count = len(list((root / _SYSFS / f"neuron{number}").glob("neuron_core[0-9]*"))) or 1
        chips.append(Chip(number, f"NEURON-{number}", None, tuple(range(taken, taken + count))))
    return chips


def _device_numbers(root: Path) -> list[int]:
    names = (path.name.removeprefix("neuron") for path in (root / "dev").glob("neuron[0-9]*"))
    return sorted(int(name) for name in names if name.isdigit())


def _named(device: Device, root: Path) -> Device:
    try:
        name = (root / _SYSFS / f"neuron{device.index}" / "info/architecture/device_name").read_text().strip()
    except OSError:
        return device
    return replace(device, name=name or device.name)
