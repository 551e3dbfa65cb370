"""Rounds matrices to the nearest numbers of few bits, some rows at a time, with numpy alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trireme.llm.models.quantized import GROUP_SIZES, Bits, QuantizedWeight, above_each_other, pack

Floats = npt.NDArray[np.float32]

_NUMBERS_AT_ONCE = 1 << 22
_LARGEST_FP8 = 448.0
_SMALLEST_SCALE = np.float32(2.0**-24)
"""Of scales in 16 bits, above zero."""
_LARGEST_SCALE = np.float32(65504.0)


class NotFiniteError(Exception):
    """A matrix with numbers that cannot be rounded."""


def group_size(columns: int) -> int | None:
    """How many columns of four bits share a scale; None: so many columns cannot be packed."""
    return next((size for size in sorted(GROUP_SIZES, reverse=True) if columns % size == 0), None)


def round_matrix(matrix: Floats, bits: Bits) -> QuantizedWeight:
    """A matrix of few bits near the one of floats; raises NotFiniteError."""
    step = max(1, _NUMBERS_AT_ONCE // max(matrix.shape[1], 1))
    parts = [_ROUNDING[bits](matrix[first : first + step]) for first in range(0, matrix.shape[0], step)]
    return above_each_other(parts) if len(parts) > 1 else parts[0]


def _to_int4(rows: Floats) -> QuantizedWeight:
    """With a scale and a zero for each group, so that its smallest and largest numbers are kept."""
    size = group_size(rows.shape[1])
    assert size is not None, "asked for by plan.py"
    grouped = rows.reshape(rows.shape[0], -1, size)
    lowest, highest = np.minimum(grouped.min(-1), 0), np.maximum(grouped.max(-1), 0)
    _check_finite(lowest, highest)
    scales = ((highest - lowest) / 15).clip(_SMALLEST_SCALE, _LARGEST_SCALE).astype(np.float16)
    exact = scales.astype(np.float32)
    zeros = np.rint(-lowest / exact).clip(0, 15)
    codes = (np.rint(grouped / exact[:, :, None]) + zeros[:, :, None]).clip(0, 15).astype(np.uint8)
    return QuantizedWeight("int4", pack(codes.reshape(rows.shape)), scales, zeros.astype(np.uint8))


def _to_int8(rows: Floats) -> QuantizedWeight:
    scales = _scales(rows, 127)
    return QuantizedWeight("int8", np.rint(rows / scales).astype(np.int8), scales)


def _to_fp8(rows: Floats) -> QuantizedWeight:
    scales = _scales(rows, _LARGEST_FP8)
    return QuantizedWeight("fp8", fp8_codes(rows / scales), scales)


def _scales(rows: Floats, largest: float) -> Floats:
    """By which the largest number of each row becomes the largest code."""
    sizes = np.abs(rows).max(-1, keepdims=True)
    _check_finite(sizes)
    found: Floats = np.where(sizes > 0, sizes / np.float32(largest), np.float32(1))
    return found


def fp8_codes(values: Floats) -> npt.NDArray[np.uint8]:
    """The bits of the nearest floats with four bits of exponent and three of mantissa; ties go to even ones.

    What is larger than the largest becomes the largest.
    """
    sizes = np.minimum(np.abs(values), np.float32(_LARGEST_FP8))
    bits = sizes.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFFF) + ((bits >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)
    normal = rounded - np.uint32((127 - 7) << 3)  # the exponent counts from 7 in place of 127
    small = np.rint(sizes * np.float32(512))  # below 2**-6 all steps are 2**-9
    codes = np.where(sizes < np.float32(2.0**-6), small.astype(np.uint32), normal).astype(np.uint8)
    return codes | np.where(np.signbit(values), np.uint8(0x80), np.uint8(0))


def _check_finite(*arrays: Floats) -> None:
    if not all(bool(np.isfinite(array).all()) for array in arrays):
        raise NotFiniteError("it has numbers that are infinite, or none at all")


_ROUNDING: dict[Bits, Callable[[Floats], QuantizedWeight]] = {"int4": _to_int4, "int8": _to_int8, "fp8": _to_fp8}
