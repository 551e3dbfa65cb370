"""Intel Gaudi accelerators (HPUs): which there are, and which of them HABANA_VISIBLE_MODULES leaves to the server."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trireme.devices.device import Device
from trireme.devices.tool_run import ToolError, csv_rows, mebibytes_of, run_tool

log = logging.getLogger(__name__)

VISIBLE = "HABANA_VISIBLE_MODULES"
HL_SMI = "hl-smi"
_QUERY = "module_id,uuid,name,memory.total"
_VENDOR = "0x1da3"  # of Habana Labs, on the PCI bus; other makers' accelerators stand in the same folders


class Module(NamedTuple):
    """One Gaudi, whether the server may use it or not."""

    module_id: int
    uuid: str
    name: str
    memory_bytes: int | None


def has_driver(root: Path = Path("/")) -> bool:
    """Whether the system shows a Gaudi; a few looks at the file system."""
    if _accel_folders(root):
        return True
    return any(re.fullmatch(r"hl\d+", path.name) for path in (root / "dev").glob("hl*"))  # older drivers


def find_hpus(environ: Mapping[str, str], root: Path = Path("/")) -> list[Device]:
    """The Gaudis that a process with these variables may open."""
    return visible_hpus(_modules(root), environ.get(VISIBLE)) if has_driver(root) else []


def visible_hpus(modules: list[Module], visible: str | None) -> list[Device]:
    """The modules that the variable leaves, by their numbers."""
    wanted = None if visible is None or visible.strip() in ("", "all") else re.findall(r"\d+", visible)
    chosen = [entry for entry in modules if wanted is None or str(entry.module_id) in wanted]
    return [
        Device("hpu", index, entry.name, entry.uuid, entry.memory_bytes, 1, True, False, (entry.module_id,))
        for index, entry in enumerate(sorted(chosen, key=lambda entry: entry.module_id))
    ]


def modules_of_smi(text: str) -> list[Module]:
    """What `hl-smi -Q` printed of module, uuid, name and memory; raises ToolError."""
    rows = [row for row in csv_rows(text, 4) if row[0].isdigit()]
    return [Module(int(module), uuid, name, mebibytes_of(memory)) for module, uuid, name, memory in rows]


def _modules(root: Path) -> list[Module]:
    try:
        return modules_of_smi(run_tool([HL_SMI, "-Q", _QUERY, "-f", "csv,noheader"]))
    except ToolError as error:
        log.warning("the memory of the Gaudi accelerators is not known, since %s", error)
    folders = _accel_folders(root) or sorted((root / "dev").glob("hl[0-9]*"))
    return [
        Module(_module_id(folder, position), f"HPU-{folder.name}", "Gaudi", None)
        for position, folder in enumerate(folders)
    ]


def _module_id(folder: Path, position: int) -> int:
    try:
        return int((folder / "device/module_id").read_text())
    except (OSError, ValueError):
        return position


def _accel_folders(root: Path) -> list[Path]:
    """`/sys/class/accel/accel<n>` of every Gaudi whose device file is here too, as it is not in every container."""
    found = []
    for folder in (root / "sys/class/accel").glob("accel[0-9]*"):
        try:
            is_gaudi = (folder / "device/vendor").read_text().strip() == _VENDOR
        except OSError:
            continue
        if is_gaudi and folder.name.removeprefix("accel").isdigit() and (root / "dev/accel" / folder.name).exists():
            found.append(folder)
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("accel")))
