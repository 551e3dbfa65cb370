"""From the numbers of a foreign format to a matrix as it is stored here, or in 16 bits where it cannot be."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.llm.models.checkpoint import StoredWeight, UnpackedWeight, Weight
from trireme.llm.models.quantized import GROUP_SIZES, MIDDLE, SPAN, QuantizedWeight, pack

log = logging.getLogger(__name__)

Codes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def nibbles(words: npt.NDArray[Any], axis: int) -> Codes:
    """The eight numbers of each word of 32 bits, the lowest bits first, along an axis."""
    return small_numbers(words, 4, axis)


def small_numbers(words: npt.NDArray[Any], bits: int, axis: int, *, is_padded: bool = False) -> Codes:
    """The same for numbers of one to eight bits; those that do not divide a word go on in the next one.

    With `is_padded` none does: a word has as many as are whole in it, and bits that mean nothing after them.
    """
    common = math.gcd(bits, 32)
    span, count = (1, 32 // bits) if is_padded else (bits // common, 32 // common)
    unsigned = np.moveaxis(words.view(np.uint32), axis, 0)
    unsigned = np.pad(unsigned, [(0, -len(unsigned) % span), *[(0, 0)] * (unsigned.ndim - 1)]) if span > 1 else unsigned
    spans = unsigned.reshape(-1, span, *unsigned.shape[1:])
    found = np.empty((len(spans), count, *unsigned.shape[1:]), np.uint8)
    for place in range(count):
        word, first = divmod(bits * place, 32)
        numbers = spans[:, word] >> np.uint32(first)
        if first + bits > 32:
            numbers = numbers | (spans[:, word + 1] << np.uint32(32 - first))
        found[:, place] = numbers & np.uint32((1 << bits) - 1)
    return np.moveaxis(found.reshape(-1, *unsigned.shape[1:]), 0, axis)


def four_bits(codes: Codes, scales: Floats, zeros: Codes) -> StoredWeight:
    """A matrix of `[rows, columns]` codes and `[rows, groups]` scales and zeros."""
    _check_shapes(codes, scales, zeros)
    columns, groups = codes.shape[1], scales.shape[1]
    size = columns // groups
    fitting = next((one for one in sorted(GROUP_SIZES, reverse=True) if size % one == 0), None)
    if fitting is None or columns % SPAN or groups * size != columns:
        return in_16_bits(codes, scales, zeros, f"groups of {size} columns")
    repeats = size // fitting
    packed, stored = pack(np.ascontiguousarray(codes)), np.repeat(_stored_scales(scales), repeats, axis=1)
    if bool((zeros == MIDDLE).all()):
        return QuantizedWeight("int4", packed, stored)
    return QuantizedWeight("int4", packed, stored, np.repeat(zeros.astype(np.uint8), repeats, axis=1))


def in_16_bits(codes: npt.NDArray[Any], scales: Floats, zeros: npt.NDArray[Any], why: str) -> Weight:
    """The numbers themselves."""
    log.debug("a matrix of few bits is unpacked: our kernels do not know %s", why)
    _check_shapes(codes, scales, zeros)
    rows, columns = codes.shape
    grouped = codes.reshape(rows, scales.shape[1], -1).astype(np.float32) - zeros.astype(np.float32)[:, :, None]
    return UnpackedWeight((grouped * scales[:, :, None]).reshape(rows, columns).astype(np.float16), "F16")


def by_columns(codes: npt.NDArray[Any], scales: Floats, zeros: npt.NDArray[Any], groups: npt.NDArray[Any]) -> Weight:
    """The numbers themselves where each column names its group, in any order."""
    _check_shapes(codes, scales, zeros)
    numbers = codes.astype(np.float32) - zeros.astype(np.float32)[:, groups]
    return UnpackedWeight((numbers * scales[:, groups]).astype(np.float16), "F16")


def by_blocks(numbers: Floats, scales: Floats, block: tuple[int, int]) -> Weight:
    """Numbers with a scale for each block of so many rows and columns; those at the edges may be smaller."""
    rows, columns = numbers.shape
    if scales.shape != (-(-rows // block[0]), -(-columns // block[1])):
        raise ValueError(f"numbers are {list(numbers.shape)}, scales {list(scales.shape)} of blocks {list(block)}")
    spread = np.repeat(np.repeat(scales, block[0], axis=0)[:rows], block[1], axis=1)[:, :columns]
    return UnpackedWeight((numbers * spread).astype(np.float16), "F16")


def eight_bits(codes: npt.NDArray[np.int8], scales: Floats) -> QuantizedWeight:
    """Whole numbers with a sign, `[rows, columns]`, and a scale for each row, or for all of them."""
    return QuantizedWeight("int8", codes, _scale_by_row(scales, codes.shape[0]))


def eight_bit_floats(codes: Codes, scales: Floats) -> QuantizedWeight:
    """The same for floats, by their bits."""
    return QuantizedWeight("fp8", codes, _scale_by_row(scales, codes.shape[0]))


def _check_shapes(codes: npt.NDArray[Any], scales: Floats, zeros: npt.NDArray[Any]) -> None:
    if scales.shape != zeros.shape or scales.shape[0] != codes.shape[0]:
        raise ValueError(f"codes are {list(codes.shape)}, scales {list(scales.shape)}, zeros {list(zeros.shape)}")


def _scale_by_row(scales: Floats, rows: int) -> Floats:
    return np.ascontiguousarray(np.broadcast_to(scales.reshape(-1, 1), (rows, 1)), np.float32)


def _stored_scales(scales: Floats) -> npt.NDArray[Any]:
    """In 16 bits where that loses nothing."""
    half = scales.astype(np.float16)
    return half if bool((half.astype(np.float32) == scales).all()) else np.ascontiguousarray(scales)
