"""Products of one row with large matrices, bound by reading the matrix: without matrix units."""

from __future__ import annotations

import triton
import triton.language as tl

from trireme.llm.kernels.activations import activate


@triton.jit
def _finish(  # type: ignore[no-untyped-def]
    y, other, rows, N, bias, residual, out, act_to,
    ACT: tl.constexpr, GATED: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    """What stands behind a product: bias, activation or gate, sum; then the result is stored."""
    inside = rows < N
    if HAS_BIAS:
        y += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        if HAS_BIAS:
            other += tl.load(bias + N + rows, mask=inside, other=0.0).to(tl.float32)
        y = activate(y, ACT) * other
    elif ACT != 0:
        y = tl.where(rows < act_to, activate(y, ACT), y)
    if HAS_RESIDUAL:
        y += tl.load(residual + rows, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def matvec_kernel(  # type: ignore[no-untyped-def]
    x, w, scales, bias, residual, out, N, eps, act_to, K: tl.constexpr, NORM: tl.constexpr, ACT: tl.constexpr,
    GATED: tl.constexpr, HAS_SCALES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Rows of the matrix by program. `N` counts the rows of the result: a gated product has twice as many rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.minimum(rows, N - 1)
    base = row.to(tl.int64) * K
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
    other = tl.sum(acc2, 1)
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, 0) / K + eps)
        y = y * scale
        other = other * scale
    if HAS_SCALES:
        y = y * tl.load(scales + row).to(tl.float32)
        if GATED:
            other = other * tl.load(scales + N + row).to(tl.float32)
    _finish(y, other, rows, N, bias, residual, out, act_to, ACT, GATED, HAS_BIAS, HAS_RESIDUAL)


@triton.jit
def _added_up(  # type: ignore[no-untyped-def]
    acc, packed, first, w, scales, zeros, row, within, K: tl.constexpr, GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr,
):  # fmt: skip
    """Adds the products of one tile of words with the row at `first`.

    Four bits become the upper ones of a number from 1 to 2, so that no conversion is needed: a code c is the number
    1 + c / 16. What is too much, and the zero, are taken off with the sum of the row's values.
    """
    part = tl.zeros_like(acc)
    total = tl.zeros_like(w).to(tl.float32)
    for nibble in tl.static_range(8):
        value = tl.load(first + nibble * 8, mask=within, other=0.0).to(tl.float32)
        total += value
        shifted = packed << (19 - 4 * nibble) if nibble < 5 else packed >> (4 * nibble - 19)
        number = ((shifted & 0x00780000) | 0x3F800000).to(tl.float32, bitcast=True)
        part += number * value[None, :]
    groups: tl.constexpr = K // GROUP
    place = row[:, None] * groups + tl.minimum(w * 8 // GROUP, groups - 1)[None, :]
    zero = 8.0
    if HAS_ZEROS:
        zero = tl.load(zeros + place).to(tl.float32)
    return acc + tl.load(scales + place).to(tl.float32) * (part - (1.0 + zero / 16.0) * total[None, :])


@triton.jit
def int4_matvec_kernel(  # type: ignore[no-untyped-def]
    x, words, scales, zeros, bias, residual, out, N, eps, act_to, K: tl.constexpr, GROUP: tl.constexpr,
    NORM: tl.constexpr, ACT: tl.constexpr, GATED: tl.constexpr, HAS_ZEROS: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The same where eight numbers are one word: word `j` of 64 columns has columns `j`, `j + 8` and so on."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.minimum(rows, N - 1)
    base = row.to(tl.int64) * (K // 8)
    acc = tl.zeros([ROWS, BLOCK_K // 8], tl.float32)
    acc2 = tl.zeros([ROWS, BLOCK_K // 8], tl.float32)
    squares = tl.zeros([BLOCK_K], tl.float32)
    for start in tl.static_range(0, K // 8, BLOCK_K // 8):
        w = start + tl.arange(0, BLOCK_K // 8)
        within = w < K // 8
        packed = tl.load(words + base[:, None] + w[None, :], mask=within[None, :], other=0)
        packed2 = packed
        if GATED:
            packed2 = tl.load(words + N * (K // 8) + base[:, None] + w[None, :], mask=within[None, :], other=0)
        if OVERLAPS and start == 0:
            tl.extra.cuda.gdc_wait()
            tl.extra.cuda.gdc_launch_dependents()
        first = x + w // 8 * 64 + w % 8
        acc = _added_up(acc, packed, first, w, scales, zeros, row, within, K, GROUP, HAS_ZEROS)
        if GATED:
            acc2 = _added_up(acc2, packed2, first, w, scales, zeros, row + N, within, K, GROUP, HAS_ZEROS)
        if NORM:
            k = start * 8 + tl.arange(0, BLOCK_K)
            value = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
            squares += value * value
    y = tl.sum(acc, 1) * 16.0
    other = tl.sum(acc2, 1) * 16.0
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, 0) / K + eps)
        y = y * scale
        other = other * scale
    _finish(y, other, rows, N, bias, residual, out, act_to, ACT, GATED, HAS_BIAS, HAS_RESIDUAL)
