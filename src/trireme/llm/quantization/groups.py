"""Groups of four bits with PyTorch: rounding, and the share of a group's range that loses least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from trireme.llm.models.quantized import QuantizedWeight, pack

_CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
_SMALLEST_SCALE = 2.0**-24
_LARGEST_SCALE = 65504.0


@dataclass(frozen=True, slots=True)
class GroupScales:
    """`[rows, groups]` each, in float32; scales are numbers of 16 bits."""

    scales: torch.Tensor
    zeros: torch.Tensor

    def codes(self, grouped: torch.Tensor) -> torch.Tensor:
        """Of `[rows, groups, size]`: numbers from 0 to 15, in float32."""
        return (grouped / self.scales.unsqueeze(-1)).round_().add_(self.zeros.unsqueeze(-1)).clamp_(0, 15)

    def numbers(self, codes: torch.Tensor) -> torch.Tensor:
        """What codes stand for."""
        return (codes - self.zeros.unsqueeze(-1)) * self.scales.unsqueeze(-1)

    def packed(self, codes: torch.Tensor) -> QuantizedWeight:
        """The matrix of `[rows, groups, size]` codes as it is stored."""
        rows = codes.shape[0]
        bytes_of = codes.to(torch.uint8).reshape(rows, -1).cpu().numpy()
        scales, zeros = self.scales.cpu().numpy().astype(np.float16), self.zeros.to(torch.uint8).cpu().numpy()
        return QuantizedWeight("int4", pack(bytes_of), scales, zeros)


def range_scales(grouped: torch.Tensor, clip: float = 1.0) -> GroupScales:
    """So that the smallest and largest numbers of each group, or a share of them, are kept."""
    lowest, highest = grouped.amin(-1).clamp(max=0) * clip, grouped.amax(-1).clamp(min=0) * clip
    scales = ((highest - lowest) / 15).clamp(_SMALLEST_SCALE, _LARGEST_SCALE).half().float()
    return GroupScales(scales, (-lowest / scales).round_().clamp_(0, 15))


def clipped_scales(grouped: torch.Tensor, grams: torch.Tensor) -> GroupScales:
    """The clip for each group whose results are nearest; `grams` are of the inputs, `[groups, size, size]`."""
    best = range_scales(grouped)
    least = _errors(grouped, best, grams)
    for clip in _CLIPS[1:]:
        tried = range_scales(grouped, clip)
        errors = _errors(grouped, tried, grams)
        is_better = errors < least
        least = torch.where(is_better, errors, least)
        best = GroupScales(
            torch.where(is_better, tried.scales, best.scales), torch.where(is_better, tried.zeros, best.zeros)
        )
    return best


def _errors(grouped: torch.Tensor, scales: GroupScales, grams: torch.Tensor) -> torch.Tensor:
    """`[rows, groups]`: how far results are off, squared."""
    off = (scales.numbers(scales.codes(grouped)) - grouped).transpose(0, 1)
    return (torch.bmm(off, grams) * off).sum(-1).t()


def gram_blocks(rows: torch.Tensor, size: int) -> torch.Tensor:
    """`[groups, size, size]` of inputs `[rows, columns]`."""
    grouped = rows.reshape(rows.shape[0], -1, size).permute(1, 2, 0)
    return torch.bmm(grouped, grouped.transpose(1, 2))
