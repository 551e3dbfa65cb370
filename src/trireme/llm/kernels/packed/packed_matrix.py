"""A matrix of few bits on the device: value = (code - zero) * scale, by row and group of columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from trireme.llm.models.quantized import Bits


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """`[rows, columns]` in the layout of `trireme.llm.models.quantized`."""

    bits: Bits
    codes: torch.Tensor
    """int4: int32 `[rows, columns / 8]`; int8 and float8 (e4m3): `[rows, columns]`."""
    scales: torch.Tensor
    """`[rows, groups]`; of int8 and fp8 there is one group."""
    zeros: torch.Tensor | None = None
    """uint8 `[rows, groups]`, of int4 alone; without them zero is 8."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1] * (8 if self.bits == "int4" else 1)

    @property
    def nbytes(self) -> int:
        """Of all that a product reads."""
        return self.codes.nbytes + self.scales.nbytes + (self.zeros.nbytes if self.zeros is not None else 0)

    @property
    def group_size(self) -> int:
        """Columns that share a scale."""
        return self.shape[1] // self.scales.shape[1]

    def numel(self) -> int:
        """How many numbers it stands for."""
        rows, columns = self.shape
        return rows * columns

    def to(self, device: torch.device) -> PackedMatrix:
        """The same there."""
        zeros = self.zeros.to(device, non_blocking=True) if self.zeros is not None else None
        codes, scales = (tensor.to(device, non_blocking=True) for tensor in (self.codes, self.scales))
        return replace(self, codes=codes, scales=scales, zeros=zeros)


def above(upper: object, lower: object) -> PackedMatrix | None:
    """One matrix with the rows of both; None: their numbers cannot lie in one."""
    return _joined(upper, lower, 0)


def beside(left: object, right: object) -> PackedMatrix | None:
    """One matrix with the columns of both; None: their numbers cannot lie in one, as where a row has one scale."""
    is_grouped = isinstance(left, PackedMatrix) and left.bits == "int4"
    return _joined(left, right, 1) if is_grouped else None


def _are_alike(first: PackedMatrix, second: PackedMatrix) -> bool:
    is_grouped = first.bits == "int4"
    return (
        first.bits == second.bits
        and (not is_grouped or first.group_size == second.group_size)
        and (first.zeros is None) == (second.zeros is None)
    )


def _joined(first: object, second: object, axis: int) -> PackedMatrix | None:
    if not isinstance(first, PackedMatrix) or not isinstance(second, PackedMatrix) or not _are_alike(first, second):
        return None
    zeros = (
        torch.cat([first.zeros, second.zeros], axis) if first.zeros is not None and second.zeros is not None else None
    )
    codes = torch.cat([first.codes.view(_BITS[first.bits]), second.codes.view(_BITS[first.bits])], axis)
    scales = torch.cat([first.scales, second.scales], axis)
    return PackedMatrix(first.bits, codes.view(first.codes.dtype), scales, zeros)


_BITS = {"int4": torch.int32, "int8": torch.int8, "fp8": torch.uint8}
"""Types of the same size, which every operation takes."""
