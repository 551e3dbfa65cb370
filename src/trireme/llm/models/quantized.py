"""Matrices of few bits as they are stored: value = (code - zero) * scale, by row and group of columns.

Four bits lie eight to a word of 32, so that a device unpacks them without moving them about: of each 64 columns, word
`j` has columns `j`, `j + 8`, `j + 16` and so on, the first in its lowest bits. Eight bits lie as they are: whole
numbers with a sign, or floats with four bits of exponent and three of mantissa (e4m3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bits = Literal["int4", "int8", "fp8"]
SPAN = 64
"""Columns whose words belong together."""
GROUP_SIZES = (64, 128)
"""Columns of four bits that may share a scale."""
MIDDLE = 8
"""The code of zero where a group of four bits does not have its own."""

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A matrix `[rows, columns]`."""

    bits: Bits
    codes: AnyArray
    """int4: int32 `[rows, columns / 8]`; int8: int8, fp8: uint8, both `[rows, columns]`."""
    scales: AnyArray
    """float16 or float32 `[rows, groups]`; of int8 and fp8 there is one group."""
    zeros: npt.NDArray[np.uint8] | None = None
    """`[rows, groups]`, of int4 alone; None: all are 8."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1] * (8 if self.bits == "int4" else 1)

    @property
    def group_size(self) -> int:
        """Columns that share a scale."""
        return self.shape[1] // int(self.scales.shape[1])

    @property
    def nbytes(self) -> int:
        """Of all three parts."""
        return self.codes.nbytes + self.scales.nbytes + (self.zeros.nbytes if self.zeros is not None else 0)

    def rows(self, order: npt.NDArray[np.intp]) -> QuantizedWeight:
        """The rows in another order."""
        zeros = None if self.zeros is None else self.zeros[order]
        return replace(self, codes=self.codes[order], scales=self.scales[order], zeros=zeros)


def are_finite(scales: AnyArray) -> bool:
    """Whether float16 or float32 are all numbers; of those without a sign the bits tell, in a fraction of the time."""
    kind, infinity = (np.uint16, 0x7C00) if scales.dtype == np.float16 else (np.uint32, 0x7F800000)
    largest = int(np.ascontiguousarray(scales).view(kind).max(initial=0))
    return largest < infinity or bool(np.isfinite(scales).all())


def are_alike(weights: Sequence[QuantizedWeight]) -> bool:
    """Whether their rows can lie in one matrix."""
    return len({(one.bits, one.shape[1], one.scales.shape[1], one.scales.dtype) for one in weights}) == 1


def above_each_other(weights: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """One matrix with the rows of all, which are alike."""
    zeros = None
    if any(one.zeros is not None for one in weights):
        zeros = np.concatenate([_explicit_zeros(one) for one in weights])
    codes, scales = np.concatenate([one.codes for one in weights]), np.concatenate([one.scales for one in weights])
    return QuantizedWeight(weights[0].bits, codes, scales, zeros)


def _explicit_zeros(weight: QuantizedWeight) -> npt.NDArray[np.uint8]:
    return np.full(weight.scales.shape, MIDDLE, np.uint8) if weight.zeros is None else weight.zeros


def pack(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Numbers from 0 to 15, `[rows, columns]`, as words; columns come in whole spans."""
    rows, columns = codes.shape
    nibbles = codes.reshape(rows, columns // SPAN, 8, 8).astype(np.uint32)
    words = np.zeros((rows, columns // SPAN, 8), np.uint32)
    for place in range(8):
        words |= nibbles[:, :, place] << np.uint32(4 * place)
    return words.reshape(rows, columns // 8).view(np.int32)


def unpack(words: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """The numbers again."""
    rows, width = words.shape
    spans = words.view(np.uint32).reshape(rows, width // 8, 1, 8)
    nibbles = (spans >> (np.arange(8, dtype=np.uint32) * 4)[:, None]) & np.uint32(15)
    return nibbles.astype(np.uint8).reshape(rows, width * 8)


def to_float32(weight: QuantizedWeight) -> npt.NDArray[np.float32]:
    """The numbers that the matrix stands for."""
    rows, columns = weight.shape
    if weight.bits == "int4":
        numbers = unpack(weight.codes).astype(np.float32)
    else:
        numbers = weight.codes.astype(np.float32) if weight.bits == "int8" else float8_numbers(weight.codes)
    grouped = numbers.reshape(rows, weight.scales.shape[1], -1)
    if weight.bits == "int4":
        zeros = np.float32(MIDDLE) if weight.zeros is None else weight.zeros.astype(np.float32)[:, :, None]
        grouped = grouped - zeros
    return (grouped * weight.scales.astype(np.float32)[:, :, None]).reshape(rows, columns)


def float8_numbers(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """What floats of eight bits (e4m3) mean, by their bits."""
    return _FLOATS[codes]


def _float_of(code: int) -> float:
    """What eight bits mean as a float with four bits of exponent and three of mantissa; 0x7F is not a number."""
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    size = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -size if code & 0x80 else size


_FLOATS = np.array([_float_of(code) for code in range(256)], dtype=np.float32)
