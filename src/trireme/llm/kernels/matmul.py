"""Products of few rows with large matrices, bound by reading the matrix: one row, and up to some hundred.

The activation or the sum behind, and of one row the norm before, are part of the same launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from trireme.llm.kernels.activations import NONE
from trireme.llm.kernels.launch import overlap, stages
from trireme.llm.kernels.one_row import int4_matvec_kernel, matvec_kernel
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix
from trireme.llm.kernels.several_rows import int4_skinny_kernel, skinny_kernel


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut into programs."""

    block_m: int
    """1: one row, without matrix units."""
    block_n: int
    block_k: int
    warps: int
    stages: int
    splits: int = 1
    """Programs that share the long side of one tile; not for gated products."""


class SplitScratch:
    """What programs with a part of a tile each leave for the last of them; one serves all launches of a stream."""

    def __init__(self, device: torch.device, floats: int = 4 << 20, tiles: int = 1 << 14) -> None:
        self.partial = torch.empty(floats, dtype=torch.float32, device=device)
        self.arrivals = torch.zeros(tiles, dtype=torch.int32, device=device)

    def has_room(self, m: int, n: int, tiling: Tiling) -> bool:
        """Whether a product of that size can be split so."""
        tiles = -(-n // tiling.block_n) * -(-m // tiling.block_m)
        size = tiles * tiling.splits * tiling.block_n * tiling.block_m
        return tiles <= self.arrivals.numel() and size <= self.partial.numel()


def few_rows(
    x: torch.Tensor,
    w: torch.Tensor | PackedMatrix,
    tiling: Tiling,
    *,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    norm_eps: float | None = None,
    activation: int = NONE,
    activate_to: int | None = None,
    is_gated: bool = False,
    scratch: SplitScratch | None = None,
    x_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """`out = activation(norm(x) @ w.T + bias) + residual`; rows of x, residual and out may lie apart.

    The norm, of one row alone, has its own weights in the matrix. `activate_to`: columns from there on are left alone.
    Gated: the upper half of the matrix, activated, times the lower half. `x_scales`: of rows in eight bits.
    """
    n = w.shape[0] // 2 if is_gated else w.shape[0]
    options: dict[str, Any] = {
        "act_to": n if activate_to is None else activate_to,
        "ACT": activation,
        "GATED": is_gated,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
        "BLOCK_K": tiling.block_k,
        "num_warps": tiling.warps,
        "num_stages": stages(tiling.stages, _stage_bytes(x, w, tiling, is_gated)),
        **overlap(),
    }
    if tiling.block_m == 1:
        options |= {"eps": norm_eps or 0.0, "NORM": norm_eps is not None, "ROWS": tiling.block_n}
        _one_row(x, w, bias, residual, out, n, options)
        return out
    assert norm_eps is None, "the norm of several rows is a launch of its own"
    has_room = scratch is not None and not is_gated and scratch.has_room(x.shape[0], n, tiling)
    options |= {
        "stride_x": x.stride(0),
        "stride_residual": residual.stride(0) if residual is not None else 0,
        "stride_out": out.stride(0),
        "partial": scratch.partial if scratch is not None else None,
        "arrivals": scratch.arrivals if scratch is not None else None,
        "SPLITS": tiling.splits if has_room else 1,
        "BLOCK_M": tiling.block_m,
        "BLOCK_N": tiling.block_n,
        "EVEN_K": x.shape[1] % tiling.block_k == 0,
    }
    _several_rows(x, x_scales, w, bias, residual, out, n, tiling, options)
    return out


def _stage_bytes(x: torch.Tensor, w: torch.Tensor | PackedMatrix, tiling: Tiling, is_gated: bool) -> int:
    """Of the tiles that one turn of the loop over the long side reads."""
    bits = 4 if isinstance(w, PackedMatrix) and w.bits == "int4" else 8 * x.element_size()
    return tiling.block_k * (tiling.block_m * 8 * x.element_size() + tiling.block_n * (1 + is_gated) * bits) // 8


def _one_row(
    x: torch.Tensor,
    w: torch.Tensor | PackedMatrix,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    n: int,
    options: dict[str, Any],
) -> None:
    grid, k = (triton.cdiv(n, options["ROWS"]),), x.shape[1]
    if isinstance(w, PackedMatrix) and w.bits == "int4":
        int4_matvec_kernel[grid](
            x, w.codes, w.scales, w.zeros, bias, residual, out, n, K=k, GROUP=w.group_size,
            HAS_ZEROS=w.zeros is not None, **options,
        )  # fmt: skip
        return
    codes, scales = (w.codes, w.scales) if isinstance(w, PackedMatrix) else (w, None)
    matvec_kernel[grid](x, codes, scales, bias, residual, out, n, K=k, HAS_SCALES=scales is not None, **options)


def _several_rows(
    x: torch.Tensor,
    x_scales: torch.Tensor | None,
    w: torch.Tensor | PackedMatrix,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    n: int,
    tiling: Tiling,
    options: dict[str, Any],
) -> None:
    m, k = x.shape
    grid = (triton.cdiv(n, tiling.block_n), triton.cdiv(m, tiling.block_m), options["SPLITS"])
    if isinstance(w, PackedMatrix) and w.bits == "int4":
        int4_skinny_kernel[grid](
            x, w.codes, w.scales, w.zeros, bias, residual, out, m, n, K=k, GROUP=w.group_size,
            HAS_ZEROS=w.zeros is not None, **options,
        )  # fmt: skip
        return
    codes, scales = (w.codes, w.scales) if isinstance(w, PackedMatrix) else (w, None)
    skinny_kernel[grid](
        x, x_scales, codes, scales, bias, residual, out, m, n, k, HAS_SCALES=scales is not None,
        HAS_X_SCALES=x_scales is not None, **options,
    )  # fmt: skip
