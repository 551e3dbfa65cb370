"""compressed-tensors: packed words of four bits, whole numbers or floats of eight, with scales beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.llm.models.checkpoint import CheckpointError, StoredWeight, Weight, to_float32
from trireme.llm.models.quantized import float8_numbers
from trireme.llm.models.quantized_formats.assembly import (
    Floats,
    by_blocks,
    by_columns,
    eight_bit_floats,
    eight_bits,
    four_bits,
    in_16_bits,
    small_numbers,
)

log = logging.getLogger(__name__)

MARKS = (".weight_packed", ".weight_scale", ".weight_scale_inv")
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense")
_BLOCK = (128, 128)
"""Rows and columns that share a scale where nothing is said."""


class CompressedTensorsFormat:
    """Codes are `[out, in]`; scales `[out, groups]`, `[out, 1]`, one for all, or one for each block."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raises CheckpointError for what cannot be read."""
        named = str(settings.get("format", "float-quantized"))
        if named not in _FORMATS:
            raise CheckpointError(
                f"a compressed-tensors checkpoint in the format '{named}' is not known here; known are "
                f"{', '.join(_FORMATS[:4])}"
            )
        sparsity = settings.get("sparsity_config") or {}
        if sparsity.get("format", "dense") != "dense":
            raise CheckpointError(f"sparse weights ('{sparsity['format']}') are not known here; use a dense checkpoint")
        self._block = _block_size(settings)

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""
        inverse = f"{module}.weight_scale_inv"
        scales = to_float32(read(inverse if inverse in names else f"{module}.weight_scale"))
        if f"{module}.weight_packed" in names:
            return _packed(module, read, names, scales)
        codes = read(f"{module}.weight")
        zero = f"{module}.weight_zero_point"
        zeros = read(zero).array if zero in names else None
        if codes.dtype == "F8_E4M3":
            return self._floats(codes, scales)
        if codes.dtype == "I8":
            return _whole_numbers(codes, scales, zeros)
        raise CheckpointError(
            f"'{module}' is {codes.dtype} with {list(scales.shape)} scales, which is not known here; known are I8 and "
            "F8_E4M3"
        )

    def _floats(self, codes: Weight, scales: Floats) -> StoredWeight:
        rows, columns = codes.shape
        if scales.size in (1, rows):
            return eight_bit_floats(codes.array, scales)
        numbers = float8_numbers(codes.array)
        if scales.shape[0] == rows:
            return by_blocks(numbers, scales, (1, columns // scales.shape[1]))
        return by_blocks(numbers, scales, self._block)


def _block_size(settings: Mapping[str, Any]) -> tuple[int, int]:
    groups = settings.get("config_groups") or {}
    said = [(group.get("weights") or {}).get("block_structure") for group in groups.values() if isinstance(group, dict)]
    found = settings.get("weight_block_size") or next((one for one in said if one), _BLOCK)
    if not isinstance(found, list | tuple) or len(found) != 2 or not all(type(one) is int and one > 0 for one in found):
        raise CheckpointError(f"blocks of {found!r} are not known here; two whole numbers are meant, as [128, 128]")
    return found[0], found[1]


def _whole_numbers(codes: Weight, scales: Floats, zeros: npt.NDArray[Any] | None) -> StoredWeight:
    rows = codes.shape[0]
    if scales.size in (1, rows) and (zeros is None or not zeros.any()):
        return eight_bits(codes.array, scales)
    by_row = _for_all_rows(scales, rows)
    moved = np.zeros(by_row.shape, np.int8) if zeros is None else _for_all_rows(zeros, rows)
    return in_16_bits(codes.array, by_row, moved, "eight bits in groups, or with zeros")


def _for_all_rows(numbers: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """`[rows, groups]` where there may be one for all."""
    groups = numbers.shape[-1] if numbers.ndim > 1 else 1
    return np.broadcast_to(numbers.reshape(-1, groups), (rows, groups))


def _packed(module: str, read: Callable[[str], Weight], names: Container[str], scales: Floats) -> StoredWeight:
    words = read(f"{module}.weight_packed").array
    rows, columns = (int(number) for number in read(f"{module}.weight_shape").array)
    bits = next((bits for bits in range(1, 9) if -(-columns * bits // 32) == words.shape[1]), None)
    if bits is None:
        raise CheckpointError(
            f"'{module}' has {columns} columns in {words.shape[1]} words; known are one to eight bits"
        )
    codes = small_numbers(words, bits, 1)[:, :columns]
    scales = _for_all_rows(scales, rows)
    zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
    if f"{module}.weight_zero_point" in names:
        zeros = _for_all_rows(_zeros(read(f"{module}.weight_zero_point"), bits, rows), rows)
    places = read(f"{module}.weight_g_idx").array if f"{module}.weight_g_idx" in names else None
    if places is not None and bool((np.diff(places) < 0).any()):
        log.debug("%s is unpacked to 16 bits: its columns are grouped by their activations", module)
        return by_columns(codes, scales, zeros, places)
    return four_bits(codes, scales, zeros) if bits == 4 else in_16_bits(codes, scales, zeros, f"{bits} bits packed")


def _zeros(weight: Weight, bits: int, rows: int) -> npt.NDArray[Any]:
    """Packed along the rows as the codes are, or whole numbers with a sign."""
    if weight.dtype == "I32":
        return small_numbers(weight.array, bits, 0)[:rows]
    return (weight.array.astype(np.int16) + (1 << (bits - 1))).astype(np.uint8)
