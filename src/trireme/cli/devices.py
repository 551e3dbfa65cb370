"""`trireme devices`: what models can run on here, and what a worker process on each device is told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from trireme.core.errors import ServingError
from trireme.devices.device import Device
from trireme.devices.environment import whole_device
from trireme.devices.inventory import Inventory, discover
from trireme.observe.terminal.appearance import line_width
from trireme.observe.terminal.table import render_table

SUMMARY = "list the devices that models can run on"

USAGE = """Usage: trireme devices [--json] [--devices=SPEC]

Lists the processor and the accelerators that a server started here would use, who may share them, and the variables
that a worker process with the whole device gets. --json prints the same for programs.

--devices stands in for hardware, as it does for the server: cuda:2,hpu:1,neuron:4x4 are two GPUs, a Gaudi and four
Neuron devices of four cores. The variable TRIREME_DEVICES does the same."""

_HEADERS = ("Device", "Name", "Memory", "Cores", "Ownership", "Environment of a worker")
_OWNERSHIP = {"hpu": "one process", "neuron": "one process per core"}


def main(arguments: Sequence[str]) -> int:
    """Prints the list; the exit code of the process."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    spec, is_json, unknown = _read(list(arguments))
    if unknown is not None:
        what = "needs a value" if unknown == "--devices" else "is not understood"
        print(f"trireme devices: '{unknown}' {what}.\n\n{USAGE}", file=sys.stderr)
        return 1
    try:
        inventory = discover(spec)
    except ServingError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    facts = [_facts(device, inventory) for device in inventory.devices]
    print(json.dumps(facts, indent=2) if is_json else _table(inventory))
    return 0


def _read(words: list[str]) -> tuple[str | None, bool, str | None]:
    """The spec, whether JSON is wanted, and the first word that is not understood."""
    spec, is_json = None, False
    while words:
        word = words.pop(0)
        if word == "--json":
            is_json = True
        elif word.startswith("--devices="):
            spec = word.removeprefix("--devices=")
        elif word == "--devices" and words:
            spec = words.pop(0)
        else:
            return spec, is_json, word
    return spec, is_json, None


def _facts(device: Device, inventory: Inventory) -> dict[str, Any]:
    return {
        "device": device.label,
        "kind": device.kind,
        "index": device.index,
        "name": device.name,
        "uuid": device.uuid,
        "memory_bytes": device.memory_bytes,
        "core_count": device.core_count,
        "is_exclusive": device.is_exclusive,
        "is_simulated": device.is_simulated,
        "environment": _environment(device, inventory),
    }


def _environment(device: Device, inventory: Inventory) -> dict[str, str]:
    return whole_device(device, inventory).variables(os.environ)


def _table(inventory: Inventory) -> str:
    rows = [
        (
            device.label,
            device.name,
            "unknown" if device.memory_bytes is None else f"{device.memory_bytes / (1 << 30):.1f} GiB",
            str(device.core_count) if device.kind in ("cpu", "neuron") else "",
            _OWNERSHIP.get(device.kind, "shared"),
            "\n".join(f"{name}={value}" for name, value in _environment(device, inventory).items()),
        )
        for device in inventory.devices
    ]
    return render_table(_HEADERS, rows, line_width(sys.stdout))
