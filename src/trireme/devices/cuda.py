"""NVIDIA GPUs: which there are, and which of them CUDA_VISIBLE_DEVICES leaves to the server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trireme.devices.device import Device
from trireme.devices.tool_run import ToolError, csv_rows, mebibytes_of, run_tool

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_SMI = "nvidia-smi"
_QUERY = "uuid,name,memory.total"


class Card(NamedTuple):
    """One GPU in the driver's order, whether the server may use it or not."""

    uuid: str
    name: str
    memory_bytes: int | None


def has_driver(root: Path = Path("/")) -> bool:
    """Whether the system shows a GPU of NVIDIA; a few looks at the file system."""
    if any((root / "proc/driver/nvidia/gpus").glob("*")):
        return True
    return bool(_device_files(root))


def find_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> list[Device]:
    """The GPUs that a process with these variables sees, numbered as it numbers them."""
    return visible_gpus(_cards(root), environ.get(VISIBLE)) if has_driver(root) else []


def visible_gpus(cards: Sequence[Card], visible: str | None) -> list[Device]:
    """The cards that the variable leaves, in its order; as CUDA reads it, the first wrong word ends the list."""
    chosen: list[Card] = list(cards)
    if visible is not None:
        chosen = []
        for word in (word.strip() for word in visible.split(",")):
            card = _card(cards, word)
            if card is None or card in chosen:
                break
            chosen.append(card)
    return [
        Device("cuda", index, card.name, card.uuid, card.memory_bytes, 1, False, False)
        for index, card in enumerate(chosen)
    ]


def cards_of_smi(text: str) -> list[Card]:
    """What `nvidia-smi --query-gpu` printed of uuid, name and memory; raises ToolError."""
    return [Card(uuid, name, mebibytes_of(memory)) for uuid, name, memory in csv_rows(text, 3)]


def cards_of_files(root: Path) -> list[Card]:
    """What the driver's own files tell, which is everything but the memory. Of those that they describe, a container
    has the device files of its own GPUs alone."""
    present = _device_files(root)
    cards = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        facts = dict(line.partition(":")[::2] for line in path.read_text(errors="replace").splitlines())
        facts = {key.strip(): value.strip() for key, value in facts.items()}
        if not present or f"nvidia{facts.get('Device Minor')}" in present:
            cards.append(Card(facts.get("GPU UUID", path.parent.name), facts.get("Model", "NVIDIA GPU"), None))
    return cards or [Card(f"GPU-{name}", "NVIDIA GPU", None) for name in present]


def _device_files(root: Path) -> list[str]:
    names = (path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    return sorted((name for name in names if name[6:].isdigit()), key=lambda name: int(name[6:]))


def _cards(root: Path) -> list[Card]:
    problems = []
    for ask in (_cards_of_nvml, _ask_smi):
        try:
            return ask()
        except ToolError as error:
            problems.append(str(error))
    log.warning("the memory of the GPUs is not known, since %s", " and ".join(problems))
    return cards_of_files(root)


def _cards_of_nvml() -> list[Card]:
    from trireme.devices import nvml  # needed where there are GPUs alone

    if not nvml.is_installed():
        raise ToolError("the package nvidia-ml-py is not installed")
    process = nvml.NvmlProcess()
    try:
        told = process.ask()
    finally:
        process.close()
    return [
        Card(facts.get("uuid", f"GPU-{n}"), facts.get("name", "NVIDIA GPU"), facts.get("memory_total_bytes"))
        for n, facts in enumerate(told)
    ]


def _ask_smi() -> list[Card]:
    return cards_of_smi(run_tool([NVIDIA_SMI, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]))


def _card(cards: Sequence[Card], word: str) -> Card | None:
    if word.isdigit():
        return cards[int(word)] if int(word) < len(cards) else None
    if word.startswith("MIG-"):
        return Card(word, "MIG slice", None)
    matches = [card for card in cards if word.startswith("GPU-") and card.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None
