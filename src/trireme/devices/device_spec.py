"""The words that stand in for hardware: `cuda:2,hpu:1,neuron:4x4`."""

from __future__ import annotations

import re

from trireme.core.errors import InvalidArgumentError
from trireme.devices.device import EXCLUSIVE_KINDS, Device, DeviceKind

NO_ACCELERATORS = ("cpu", "none")
DEFAULT_NEURON_CORES = 2
MOST_DEVICES = 1024
MOST_MEMORY_BYTES = 1 << 60
_PART = re.compile(r"(cuda|hpu|neuron)(?::(\d+)(?:x(\d+))?)?(?:@(\d+(?:\.\d+)?)([KMGT])iB)?", re.IGNORECASE | re.ASCII)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NAMES: dict[DeviceKind, str] = {"cuda": "simulated GPU", "hpu": "simulated Gaudi", "neuron": "simulated Neuron device"}
_FORMS = (
    "valid forms are cuda:<count>, hpu:<count>, neuron:<devices>x<cores of each>, each with the memory of one device "
    "behind it where that matters (cuda:2@80GiB), joined by commas; 'cpu' means no accelerators"
)


def simulated_devices(spec: str) -> list[Device]:
    """The accelerators that the words stand for; raises InvalidArgumentError where one is malformed."""
    devices: list[Device] = []
    for part in (word.strip() for word in spec.split(",")):
        if part.lower() not in NO_ACCELERATORS:
            _add(devices, part, spec)
    return devices


def _add(devices: list[Device], part: str, spec: str) -> None:
    match = _PART.fullmatch(part)
    if match is None:
        raise _refusal(part, spec, "is not a device")
    kind = _kind(match[1].lower())
    count = int(match[2] or 1)
    if not 1 <= count <= MOST_DEVICES:
        raise _refusal(part, spec, f"must count between 1 and {MOST_DEVICES} devices")
    if match[3] is not None and (kind != "neuron" or not 1 <= int(match[3]) <= MOST_DEVICES):
        raise _refusal(part, spec, "gives cores, which only Neuron devices have, one or more of them")
    cores = int(match[3] or DEFAULT_NEURON_CORES) if kind == "neuron" else 1
    memory = None if match[4] is None else round(float(match[4]) * _UNITS[match[5].upper()])
    if memory is not None and not 1 <= memory <= MOST_MEMORY_BYTES:
        raise _refusal(part, spec, "gives a device no memory, or more than there is in the world")
    for _ in range(count):
        devices.append(_device(devices, kind, cores, memory))


def _device(devices: list[Device], kind: DeviceKind, cores: int, memory_bytes: int | None) -> Device:
    before = [device for device in devices if device.kind == kind]
    index, taken = len(before), sum(len(device.units) for device in before)
    units = tuple(range(taken, taken + cores)) if kind in EXCLUSIVE_KINDS else ()
    prefix = {"cuda": "GPU", "hpu": "HPU", "neuron": "NEURON"}[kind]
    uuid = f"{prefix}-simulated-{index}"
    return Device(kind, index, _NAMES[kind], uuid, memory_bytes, cores, kind in EXCLUSIVE_KINDS, True, units)


def _kind(word: str) -> DeviceKind:
    return "cuda" if word == "cuda" else "hpu" if word == "hpu" else "neuron"


def _refusal(part: str, spec: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"'{part}' of --devices (or TRIREME_DEVICES) '{spec}' {what}; {_FORMS}")
