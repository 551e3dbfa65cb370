"""AWQ in its GEMM layout: codes and zeros packed along the outputs, every second output first."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import CheckpointError, StoredWeight, Weight, to_float32
from trireme.llm.models.quantized_formats.assembly import Codes, four_bits, nibbles

MARKS = (".qweight",)
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs lies at each place of a word."""


class AwqFormat:
    """`qweight [in, out / 8]`, `qzeros [groups, out / 8]`, `scales [groups, out]`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raises CheckpointError for other layouts."""
        version = str(settings.get("version", "gemm")).lower()
        if version != "gemm":
            raise CheckpointError(f"an AWQ checkpoint in the layout '{version}' is not known here; known is gemm")
        bits = settings.get("bits", settings.get("w_bit", 4))
        if bits != 4:
            raise CheckpointError(f"an AWQ checkpoint of {bits} bits is not known here; known is 4")

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""
        codes = _in_order(nibbles(read(f"{module}.qweight").array, 1)).T
        zeros = _in_order(nibbles(read(f"{module}.qzeros").array, 1)).T
        return four_bits(codes, to_float32(read(f"{module}.scales")).T, zeros)


def _in_order(found: Codes) -> Codes:
    ordered = np.empty_like(found)
    for place, output in enumerate(_ORDER):
        ordered[:, output::8] = found[:, place::8]
    return ordered
