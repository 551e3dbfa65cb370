"""GPTQ: codes packed along the inputs, zeros along the outputs, and a list of each input's group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import CheckpointError, StoredWeight, Weight, to_float32
from trireme.llm.models.quantized_formats.assembly import by_columns, four_bits, in_16_bits, small_numbers

log = logging.getLogger(__name__)

MARKS = (".qweight",)


class GptqFormat:
    """`qweight [in / 8, out]`, `qzeros [groups, out / 8]`, `scales [groups, out]`, `g_idx [in]`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raises CheckpointError for numbers of bits that are not known."""
        self._bits = settings.get("bits", 4)
        if self._bits not in (4, 8):
            raise CheckpointError(f"a GPTQ checkpoint of {self._bits} bits is not known here; known are 4 and 8")
        self._is_second = settings.get("checkpoint_format") == "gptq_v2"
        self._has_told = False

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""
        codes = small_numbers(read(f"{module}.qweight").array, self._bits, 0).T
        scales = to_float32(read(f"{module}.scales")).T
        zeros = small_numbers(read(f"{module}.qzeros").array, self._bits, 1)[:, : codes.shape[0]].T
        if not self._is_second:  # one less was written
            zeros = (zeros + 1) & ((1 << self._bits) - 1)
        places = read(f"{module}.g_idx").array if f"{module}.g_idx" in names else None
        if places is not None and not _is_in_order(places, scales.shape[1]):
            self._tell("its columns are grouped by their activations (act-order)")
            return by_columns(codes, scales, zeros, places)
        if self._bits == 8:
            self._tell("eight bits in groups")
            return in_16_bits(codes, scales, zeros, "eight bits in groups")
        return four_bits(codes, scales, zeros)

    def _tell(self, why: str) -> None:
        if not self._has_told:
            self._has_told = True
            log.info("GPTQ: matrices are unpacked to 16 bits: %s", why)


def _is_in_order(places: Any, groups: int) -> bool:
    size = -(-len(places) // groups)
    return bool((places == np.arange(len(places)) // size).all())
