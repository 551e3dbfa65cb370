"""compressed-tensors: packed words of four bits, whole numbers or floats of eight, with scales beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import CheckpointError, StoredWeight, Weight, to_float32
from trireme.llm.models.quantized import MIDDLE
from trireme.llm.models.quantized_formats.assembly import (
    by_columns,
    eight_bit_floats,
    eight_bits,
    four_bits,
    in_16_bits,
    small_numbers,
)

log = logging.getLogger(__name__)

MARKS = (".weight_packed", ".weight_scale")
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense")


class CompressedTensorsFormat:
    """Codes are `[out, in]`; scales `[out, groups]`, `[out, 1]` or one for all."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raises CheckpointError for what cannot be read."""
        named = str(settings.get("format", "float-quantized"))
        if named not in _FORMATS:
            raise CheckpointError(
                f"a compressed-tensors checkpoint in the format '{named}' is not known here; known are "
                f"{', '.join(_FORMATS[:4])}"
            )
        if settings.get("weight_block_size"):
            raise CheckpointError("float8 weights with scales of blocks are not known here; use scales of rows")
        sparsity = settings.get("sparsity_config") or {}
        if sparsity.get("format", "dense") != "dense":
            raise CheckpointError(f"sparse weights ('{sparsity['format']}') are not known here; use a dense checkpoint")

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""
        scales = to_float32(read(f"{module}.weight_scale"))
        if f"{module}.weight_packed" in names:
            return _packed(module, read, names, scales)
        codes = read(f"{module}.weight")
        is_by_row = scales.size in (1, codes.shape[0])
        zero = f"{module}.weight_zero_point"
        zeros = read(zero).array if zero in names else None
        if codes.dtype == "F8_E4M3" and is_by_row:
            return eight_bit_floats(codes.array, scales)
        if codes.dtype == "I8" and is_by_row and (zeros is None or not zeros.any()):
            return eight_bits(codes.array, scales)
        if codes.dtype == "I8" and scales.ndim == 2 and scales.shape[0] == codes.shape[0]:
            none = np.zeros(scales.shape, np.int8)
            return in_16_bits(codes.array, scales, none if zeros is None else zeros, "eight bits in groups")
        raise CheckpointError(
            f"'{module}' is {codes.dtype} with {list(scales.shape)} scales, which is not known here; known are a scale "
            "for each row, or one for all"
        )


def _packed(
    module: str, read: Callable[[str], Weight], names: Container[str], scales: np.ndarray[Any, Any]
) -> StoredWeight:
    words = read(f"{module}.weight_packed").array
    rows, columns = (int(number) for number in read(f"{module}.weight_shape").array)
    per_word = -(-columns // words.shape[1])
    if per_word not in (4, 8):
        raise CheckpointError(f"'{module}' has {per_word} numbers to a word; known are 8 (four bits) and 4 (eight)")
    bits = 32 // per_word
    codes = small_numbers(words, bits, 1)[:, :columns]
    scales = np.broadcast_to(scales.reshape(-1, scales.shape[-1] if scales.ndim > 1 else 1), (rows, scales.shape[-1]))
    zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
    if f"{module}.weight_zero_point" in names:
        zeros = _zeros(read(f"{module}.weight_zero_point"), bits, rows)
    places = read(f"{module}.weight_g_idx").array if f"{module}.weight_g_idx" in names else None
    if places is not None and bool((np.diff(places) < 0).any()):
        log.debug("%s is unpacked to 16 bits: its columns are grouped by their activations", module)
        return by_columns(codes, scales, zeros, places)
    return four_bits(codes, scales, zeros) if bits == 4 else in_16_bits(codes, scales, zeros, "eight bits packed")


def _zeros(weight: Weight, bits: int, rows: int) -> np.ndarray[Any, Any]:
    """Packed along the rows as the codes are, or whole numbers with a sign."""
    if weight.dtype == "I32":
        return small_numbers(weight.array, bits, 0)[:rows]
    middle = MIDDLE if bits == 4 else 128
    return (weight.array.astype(np.int16) + middle).astype(np.uint8)
