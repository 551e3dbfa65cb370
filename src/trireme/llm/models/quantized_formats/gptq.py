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
_LAYOUTS = ("gptq", "gptq_v2")
_BITS = (2, 3, 4, 8)


class GptqFormat:
    """Of four bits: `qweight [in / 8, out]`, `qzeros [groups, out / 8]`, `scales [groups, out]`, `g_idx [in]`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raises CheckpointError for layouts that are not known."""
        layout = str(settings.get("checkpoint_format", "gptq")).lower()
        if layout not in _LAYOUTS:
            raise CheckpointError(
                f"a GPTQ checkpoint in the layout '{layout}' is not known here; known are {', '.join(_LAYOUTS)}"
            )
        self._bits = _known(settings.get("bits", 4))
        self._is_second = layout == "gptq_v2"
        self._has_told = False

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`; it may have other bits than most (`dynamic` settings)."""
        words = read(f"{module}.qweight").array
        places = read(f"{module}.g_idx").array if f"{module}.g_idx" in names else None
        if places is not None and not len(places):
            places = None  # some write an empty list where all columns are in order
        bits = self._bits if places is None else _known(words.shape[0] * 32 / len(places))
        codes = small_numbers(words, bits, 0).T
        scales = to_float32(read(f"{module}.scales")).T
        zeros = small_numbers(read(f"{module}.qzeros").array, bits, 1)[:, : codes.shape[0]].T
        if not self._is_second:  # one less was written
            zeros = (zeros + np.uint8(1)) & np.uint8((1 << bits) - 1)
        if places is not None and not _is_in_order(places, scales.shape[1]):
            self._tell("its columns are grouped by their activations (act-order)")
            return by_columns(codes, scales, zeros, places)
        if bits != 4:
            self._tell(f"{bits} bits in groups")
            return in_16_bits(codes, scales, zeros, f"{bits} bits in groups")
        return four_bits(codes, scales, zeros)

    def _tell(self, why: str) -> None:
        if not self._has_told:
            self._has_told = True
            log.info("GPTQ: matrices are unpacked to 16 bits: %s", why)


def _known(bits: object) -> int:
    """The number, which some checkpoints have as a text; raises CheckpointError."""
    for known in _BITS:
        if bits in (known, str(known)):
            return known
    told = f"{bits:g}" if isinstance(bits, int | float) else repr(bits)
    raise CheckpointError(f"a GPTQ checkpoint of {told} bits is not known here; known are 2, 3, 4 and 8")


def _is_in_order(places: Any, groups: int) -> bool:
    size = -(-len(places) // groups)
    return bool((places == np.arange(len(places)) // size).all())
