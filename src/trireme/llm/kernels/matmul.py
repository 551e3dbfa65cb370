"""Products of few rows with large matrices, bound by reading the matrix: one row, and up to 128.

The activation or the sum behind, and of one row the norm before, are part of the same launch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

NONE, SILU, GELU, GELU_TANH, RELU, RELU_SQUARED = 0, 1, 2, 3, 4, 5
ACTIVATIONS = {"silu": SILU, "gelu": GELU, "gelu_tanh": GELU_TANH, "relu": RELU, "relu_squared": RELU_SQUARED}


_IS_INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))


def overlap() -> dict[str, bool]:
    """Launch options of a kernel that may be on its processors before the one before it has ended, and waits there.

    Every kernel between two such that depend on each other has to wait as well.
    """
    return {"OVERLAPS": False} if _IS_INTERPRETED else {"OVERLAPS": True, "launch_pdl": True}


@triton.jit
def _erf_gelu(x):  # type: ignore[no-untyped-def]
    """With the error function to 1.5e-7 (Abramowitz and Stegun 7.1.26): the exact one takes longer than reading x."""
    size = tl.abs(x) * 0.7071067811865476
    root = tl.rsqrt(1.0 + 0.3275911 * size)
    t = root * root
    series = 1.421413741 + t * (-1.453152027 + t * 1.061405429)
    half_tail = 0.5 * t * (0.254829592 + t * (-0.284496736 + t * series)) * tl.exp(-size * size)
    return x * tl.where(x >= 0, 1.0 - half_tail, half_tail)


@triton.jit
def _tanh_gelu(x):  # type: ignore[no-untyped-def]
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(2.0 * inner)


@triton.jit
def activate(x, ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Applies the activation of that number."""
    if ACT == 1:
        x = x * tl.sigmoid(x)
    elif ACT == 2:
        x = _erf_gelu(x)
    elif ACT == 3:
        x = _tanh_gelu(x)
    elif ACT == 4:
        x = tl.maximum(x, 0.0)
    elif ACT == 5:
        x = tl.maximum(x, 0.0)
        x = x * x
    return x


@triton.jit
def _matvec_kernel(  # type: ignore[no-untyped-def]
    x,
    w,
    bias,
    residual,
    out,
    N,
    eps,
    act_to,
    K: tl.constexpr,
    NORM: tl.constexpr,
    ACT: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Rows of the matrix by program. `N` counts the rows of the result: a gated product has twice as many rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < N
    base = tl.minimum(rows, N - 1).to(tl.int64) * K
    acc = tl.zeros([ROWS, BLOCK_K], tl.float32)
    acc2 = tl.zeros([ROWS, BLOCK_K], tl.float32)
    squares = tl.zeros([BLOCK_K], tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        tile2 = acc2
        if start + BLOCK_K <= K:
            tile = tl.load(w + base[:, None] + k[None, :])
            if GATED:
                tile2 = tl.load(w + N * K + base[:, None] + k[None, :])
            if OVERLAPS and start == 0:  # the matrix does not depend on the launch before, the row does
                tl.extra.cuda.gdc_wait()
                tl.extra.cuda.gdc_launch_dependents()
            value = tl.load(x + k).to(tl.float32)
        else:
            within = k < K
            tile = tl.load(w + base[:, None] + k[None, :], mask=within[None, :], other=0.0)
            if GATED:
                tile2 = tl.load(w + N * K + base[:, None] + k[None, :], mask=within[None, :], other=0.0)
            if OVERLAPS and start == 0:
                tl.extra.cuda.gdc_wait()
                tl.extra.cuda.gdc_launch_dependents()
            value = tl.load(x + k, mask=within, other=0.0).to(tl.float32)
        if NORM:
            squares += value * value
        acc += tile.to(tl.float32) * value[None, :]
        if GATED:
            acc2 += tile2.to(tl.float32) * value[None, :]
    y = tl.sum(acc, 1)
    scale = 1.0
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, 0) / K + eps)
        y = y * scale
    if HAS_BIAS:
        y += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        other = tl.sum(acc2, 1) * scale
        if HAS_BIAS:
            other += tl.load(bias + N + rows, mask=inside, other=0.0).to(tl.float32)
        y = activate(y, ACT) * other
    elif ACT != 0:
        y = tl.where(rows < act_to, activate(y, ACT), y)
    if HAS_RESIDUAL:
        y += tl.load(residual + rows, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _skinny_kernel(  # type: ignore[no-untyped-def]
    x,
    w,
    bias,
    residual,
    out,
    M,
    N,
    K,
    act_to,
    stride_x,
    stride_residual,
    stride_out,
    partial,
    arrivals,
    ACT: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    SPLITS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Columns of the result by program, for all rows; the matrix is the left operand, so that few rows waste little.

    With splits, several programs have a part of the long side each, and the last of them adds up. A norm before it
    is a launch of its own: sums of squares in this loop came out wrong, as the compiler overlaps the loop's products
    with what else reads their operands.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    w_tile = w + tl.minimum(n, N - 1).to(tl.int64)[:, None] * K + k[None, :]
    x_tile = x + tl.minimum(m, M - 1)[None, :] * stride_x + k[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    acc2 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    first, last = 0, K
    if SPLITS > 1:
        share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
        first = tl.program_id(2) * share
        last = tl.minimum(first + share, K)
    for start in range(first, last, BLOCK_K):
        if EVEN_K:
            values = tl.load(x_tile + start)
            tile = tl.load(w_tile + start)
        else:
            within = start + k < K
            values = tl.load(x_tile + start, mask=within[:, None], other=0.0)
            tile = tl.load(w_tile + start, mask=within[None, :], other=0.0)
        acc = tl.dot(tile, values, acc, input_precision="ieee")
        if GATED:
            if EVEN_K:
                tile2 = tl.load(w_tile + N * K + start)
            else:
                tile2 = tl.load(w_tile + N * K + start, mask=(start + k < K)[None, :], other=0.0)
            acc2 = tl.dot(tile2, values, acc2, input_precision="ieee")
    is_last = True
    if SPLITS > 1:
        tile_id = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        place = partial + tile_id * SPLITS * BLOCK_N * BLOCK_M
        inner = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        tl.store(place + tl.program_id(2) * BLOCK_N * BLOCK_M + inner, acc)
        tl.debug_barrier()
        before = tl.atomic_add(arrivals + tile_id, 1, sem="acq_rel")
        is_last = before == SPLITS - 1
        if is_last:
            tl.store(arrivals + tile_id, 0)
            acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
            for index in range(SPLITS):
                acc += tl.load(place + index * BLOCK_N * BLOCK_M + inner, cache_modifier=".cg")
    if is_last:
        if HAS_BIAS:
            acc += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
        if GATED:
            if HAS_BIAS:
                acc2 += tl.load(bias + N + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
            acc = activate(acc, ACT) * acc2
        elif ACT != 0:
            acc = tl.where(n[:, None] < act_to, activate(acc, ACT), acc)
        inside = (n < N)[:, None] & (m < M)[None, :]
        if HAS_RESIDUAL:
            acc += tl.load(residual + m[None, :] * stride_residual + n[:, None], mask=inside, other=0.0).to(tl.float32)
        tl.store(out + m[None, :] * stride_out + n[:, None], acc.to(out.dtype.element_ty), mask=inside)


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
    w: torch.Tensor,
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
) -> torch.Tensor:
    """`out = activation(norm(x) @ w.T + bias) + residual`; rows of x, residual and out may lie apart.

    The norm, of one row alone, has its own weights in the matrix. `activate_to`: columns from there on are left alone.
    Gated: the upper half of the matrix, activated, times the lower half.
    """
    m, k = x.shape
    n = w.shape[0] // 2 if is_gated else w.shape[0]
    options: dict[str, Any] = {
        "ACT": activation,
        "GATED": is_gated,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
        "num_warps": tiling.warps,
        "num_stages": tiling.stages,
        **overlap(),
    }
    act_to = n if activate_to is None else activate_to
    if tiling.block_m == 1:
        grid = (triton.cdiv(n, tiling.block_n),)
        _matvec_kernel[grid](
            x, w, bias, residual, out, n, norm_eps or 0.0, act_to, K=k, NORM=norm_eps is not None, ROWS=tiling.block_n,
            BLOCK_K=tiling.block_k, **options,
        )  # fmt: skip
        return out
    assert norm_eps is None, "the norm of several rows is a launch of its own"
    splits = tiling.splits if scratch is not None and not is_gated and scratch.has_room(m, n, tiling) else 1
    _skinny_kernel[(triton.cdiv(n, tiling.block_n), triton.cdiv(m, tiling.block_m), splits)](
        x,
        w,
        bias,
        residual,
        out,
        m,
        n,
        k,
        act_to,
        x.stride(0),
        residual.stride(0) if residual is not None else 0,
        out.stride(0),
        scratch.partial if scratch is not None else None,
        scratch.arrivals if scratch is not None else None,
        SPLITS=splits,
        BLOCK_M=tiling.block_m,
        BLOCK_N=tiling.block_n,
        BLOCK_K=tiling.block_k,
        EVEN_K=k % tiling.block_k == 0,
        **options,
    )
    return out
