"""GPTQ: columns are rounded one after another, and what each loses is made up for by those that follow.

The scales of groups are found first, from the matrix as it was, so that columns can be taken in the order of their
weight in the results while each stays in its place.
"""

from __future__ import annotations

import torch

from trireme.llm.models.quantized import QuantizedWeight
from trireme.llm.quantization.groups import GroupScales, clipped_scales
from trireme.llm.quantization.plain import QuantizationError

_BLOCK = 128
_DAMPING = 0.01


class GramMatrix:
    """The sum of the products of inputs with themselves, `[columns, columns]`."""

    def __init__(self) -> None:
        self.total: torch.Tensor | None = None

    def add(self, rows: torch.Tensor) -> None:
        """Some more inputs, `[rows, columns]`."""
        values = rows.float()
        product = values.t() @ values
        self.total = product if self.total is None else self.total.add_(product)


def gptq(matrix: torch.Tensor, gram: torch.Tensor, size: int) -> QuantizedWeight:
    """The matrix `[rows, columns]` in four bits, in groups of so many columns."""
    rows, columns = matrix.shape
    groups = columns // size
    blocks = torch.stack([gram[at : at + size, at : at + size] for at in range(0, columns, size)])
    scales = clipped_scales(matrix.view(rows, groups, size), blocks)
    order = gram.diagonal().argsort(descending=True)
    factor = _inverse_factor(gram[order][:, order])
    codes = torch.empty_like(matrix)
    codes[:, order] = _round_in_order(matrix[:, order].clone(), factor, scales, order // size)
    return scales.packed(codes.view(rows, groups, size))


def _inverse_factor(gram: torch.Tensor) -> torch.Tensor:
    """The upper factor of the inverse; the diagonal is made larger until there is one, or it is no number any more."""
    mean = float(gram.diagonal().mean()) or 1.0
    damping = _DAMPING
    while True:
        damped = gram + torch.eye(gram.shape[0], device=gram.device) * (damping * mean)
        if not bool(damped.diagonal().isfinite().all()):
            raise QuantizationError("a matrix has inputs too large to be multiplied; the checkpoint is damaged")
        lower, problem = torch.linalg.cholesky_ex(damped)
        if not int(problem):
            upper: torch.Tensor
            upper, problem = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
        if not int(problem) and bool(torch.isfinite(upper).all()):
            return upper
        damping *= 10


def _round_in_order(
    matrix: torch.Tensor, factor: torch.Tensor, scales: GroupScales, groups: torch.Tensor
) -> torch.Tensor:
    """Codes of columns that are in the order in which they are taken; the matrix is used up."""
    codes = torch.empty_like(matrix)
    columns = matrix.shape[1]
    for first in range(0, columns, _BLOCK):
        last = min(first + _BLOCK, columns)
        losses = torch.empty_like(matrix[:, first:last])
        for column in range(first, last):
            group = groups[column]
            scale, zero = scales.scales[:, group], scales.zeros[:, group]
            code = (matrix[:, column] / scale).round_().add_(zero).clamp_(0, 15)
            loss = (matrix[:, column] - (code - zero) * scale) / factor[column, column]
            matrix[:, column + 1 : last] -= loss.unsqueeze(1) * factor[column, column + 1 : last]
            codes[:, column], losses[:, column - first] = code, loss
        matrix[:, last:] -= losses @ factor[first:last, last:]
    return codes
