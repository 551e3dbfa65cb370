"""compressed-tensors: packed words of four bits, whole numbers or floats of eight, with scales beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
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
_BITS = 8
"""Of a number where a group does not say it."""


@dataclass(frozen=True, slots=True)
class _Packing:
    """How numbers of few bits lie in words of 32: close together, or, in older releases, none of them in two words."""

    bits: int
    is_padded: bool

    def word_count(self, numbers: int) -> int:
        return -(-numbers // (32 // self.bits)) if self.is_padded else -(-numbers * self.bits // 32)

    def unpack(self, words: npt.NDArray[Any], axis: int, count: int) -> npt.NDArray[np.uint8]:
        """So many numbers along an axis; raises ValueError where they take another number of words."""
        if words.shape[axis] != self.word_count(count):
            raise ValueError(f"{count} numbers of {self.bits} bits are in {words.shape[axis]} words")
        found = small_numbers(words, self.bits, axis, is_padded=self.is_padded)
        return found[:count] if axis == 0 else found[:, :count]


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
        self._packings = _packings(settings)

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""
        inverse = f"{module}.weight_scale_inv"
        scales = to_float32(read(inverse if inverse in names else f"{module}.weight_scale"))
        if f"{module}.weight_packed" in names:
            return self._packed(module, read, names, scales)
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

    def _packed(
        self, module: str, read: Callable[[str], Weight], names: Container[str], scales: Floats
    ) -> StoredWeight:
        words = read(f"{module}.weight_packed").array
        rows, columns = (int(number) for number in read(f"{module}.weight_shape").array)
        packing = _fitting(self._packings, module, columns, words.shape[1])
        codes, bits = packing.unpack(words, 1, columns), packing.bits
        scales = _for_all_rows(scales, rows)
        zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
        if f"{module}.weight_zero_point" in names:
            zeros = _for_all_rows(_zeros(read(f"{module}.weight_zero_point"), packing, rows), rows)
        places = read(f"{module}.weight_g_idx").array if f"{module}.weight_g_idx" in names else None
        if places is not None and bool((np.diff(places) < 0).any()):
            log.debug("%s is unpacked to 16 bits: its columns are grouped by their activations", module)
            return by_columns(codes, scales, zeros, places)
        return four_bits(codes, scales, zeros) if bits == 4 else in_16_bits(codes, scales, zeros, f"{bits} bits packed")

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


def _packings(settings: Mapping[str, Any]) -> tuple[_Packing, ...]:
    """Of the groups with whole numbers: each number of bits in the ways that it may be packed."""
    groups = [group for group in (settings.get("config_groups") or {}).values() if isinstance(group, dict)]
    weights = [group["weights"] for group in groups if isinstance(group.get("weights"), dict)]
    said = [one.get("num_bits", _BITS) for one in weights if one.get("type", "int") == "int"]
    return tuple(
        _Packing(bits, is_padded)
        for bits in range(1, 9)
        if bits in said
        for is_padded in ((False, True) if 32 % bits else (False,))
    )


def _fitting(packings: Sequence[_Packing], module: str, columns: int, words: int) -> _Packing:
    """The one with which so many columns take so many words; raises CheckpointError where there is not exactly one."""
    fitting = [one for one in packings if one.word_count(columns) == words]
    if len(fitting) == 1:
        return fitting[0]
    if not packings:
        raise CheckpointError(f"'{module}' is packed, but no group in config.json says with 1 to 8 bits (num_bits)")
    if fitting:
        ways = " or ".join(f"{one.bits} bits{', padded' * one.is_padded}" for one in fitting)
        raise CheckpointError(f"'{module}' has {columns} columns in {words} words, which may be {ways}: nothing tells")
    ways = ", ".join(f"{one.word_count(columns)} ({one.bits} bits{', padded' * one.is_padded})" for one in packings)
    raise CheckpointError(
        f"'{module}' has {columns} columns in {words} words; with num_bits of config.json they take {ways}"
    )


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


def _zeros(weight: Weight, packing: _Packing, rows: int) -> npt.NDArray[Any]:
    """Packed along the rows as the codes are, or whole numbers with a sign."""
    if weight.dtype == "I32":
        return packing.unpack(weight.array, 0, rows)
    return (weight.array.astype(np.int16) + (1 << (packing.bits - 1))).astype(np.uint8)
