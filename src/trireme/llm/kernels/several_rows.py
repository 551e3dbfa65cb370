"""Products of up to some 128 rows with large matrices: the matrix is the left operand, so that few rows waste little.

With splits, several programs have a part of the long side each, and the last of them adds up. A norm before it is a
launch of its own: sums of squares in such a loop came out wrong, as the compiler overlaps the loop's products with what
else reads their operands.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trireme.llm.kernels.activations import activate


@triton.jit
def _sum_of_splits(  # type: ignore[no-untyped-def]
    acc, partial, arrivals, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Leaves a part of the tile; whether this program is the last, and for it the sum of all parts."""
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
    return acc, is_last


@triton.jit
def _finish(  # type: ignore[no-untyped-def]
    acc, acc2, n, m, M, N, bias, residual, out, act_to, stride_residual, stride_out,
    ACT: tl.constexpr, GATED: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    """What stands behind a product: bias, activation or gate, sum; then the result is stored."""
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


@triton.jit(do_not_specialize=["M"])  # one program for every number of rows
def skinny_kernel(  # type: ignore[no-untyped-def]
    x, x_scales, w, scales, bias, residual, out, M, N, K, act_to, stride_x, stride_residual, stride_out, partial,
    arrivals, ACT: tl.constexpr, GATED: tl.constexpr, HAS_SCALES: tl.constexpr, HAS_X_SCALES: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, SPLITS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Columns of the result by program, for all rows."""
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
        acc = tl.dot(tile.to(values.dtype), values, acc, input_precision="ieee", max_num_imprecise_acc=BLOCK_K)
        if GATED:
            if EVEN_K:
                tile2 = tl.load(w_tile + N * K + start)
            else:
                tile2 = tl.load(w_tile + N * K + start, mask=(start + k < K)[None, :], other=0.0)
            acc2 = tl.dot(tile2.to(values.dtype), values, acc2, input_precision="ieee", max_num_imprecise_acc=BLOCK_K)
    is_last = True
    if SPLITS > 1:
        acc, is_last = _sum_of_splits(acc, partial, arrivals, BLOCK_M, BLOCK_N, SPLITS)
    if is_last:
        if HAS_SCALES:
            acc = acc * tl.load(scales + tl.minimum(n, N - 1)).to(tl.float32)[:, None]
            if GATED:
                acc2 = acc2 * tl.load(scales + N + tl.minimum(n, N - 1)).to(tl.float32)[:, None]
        if HAS_X_SCALES:
            of_rows = tl.load(x_scales + tl.minimum(m, M - 1))[None, :]
            acc = acc * of_rows
            acc2 = acc2 * of_rows
        _finish(
            acc, acc2, n, m, M, N, bias, residual, out, act_to, stride_residual, stride_out, ACT, GATED, HAS_BIAS,
            HAS_RESIDUAL,
        )  # fmt: skip


@triton.jit
def _numbers_of(  # type: ignore[no-untyped-def]
    packed, place, scales, zeros, NIBBLE: tl.constexpr, HAS_ZEROS: tl.constexpr, IS_SCALED: tl.constexpr, kind,
):  # fmt: skip
    """One of the eight numbers of each word, less zero; times the scale where groups end within a tile."""
    code = (packed >> (4 * NIBBLE)) & 15
    if kind == tl.bfloat16:  # four bits become the lower ones of a number from 128 on: no conversion
        number = (code | 0x4300).to(tl.int16).to(tl.bfloat16, bitcast=True).to(tl.float32) - 128.0
    else:
        number = code.to(tl.float32)
    if HAS_ZEROS:
        number = number - tl.load(zeros + place).to(tl.float32)
    else:
        number = number - 8.0
    if IS_SCALED:
        number = number * tl.load(scales + place).to(tl.float32)
    return number.to(kind)


@triton.jit
def _int4_step(  # type: ignore[no-untyped-def]
    acc, words, x_tile, w, last, row, scales, zeros, K: tl.constexpr, GROUP: tl.constexpr,
    HAS_ZEROS: tl.constexpr, IS_SCALED: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """The products of one tile of words."""
    groups: tl.constexpr = K // GROUP
    within = w < last
    if EVEN_K:
        packed = tl.load(words + row.to(tl.int64)[:, None] * (K // 8) + w[None, :])
    else:
        packed = tl.load(words + row.to(tl.int64)[:, None] * (K // 8) + w[None, :], mask=within[None, :], other=0)
    place = row[:, None] * groups + tl.minimum(w * 8 // GROUP, groups - 1)[None, :]
    part = tl.zeros_like(acc)
    for nibble in tl.static_range(8):
        if EVEN_K:
            values = tl.load(x_tile + nibble * 8)
        else:
            values = tl.load(x_tile + nibble * 8, mask=within[:, None], other=0.0)
        numbers = _numbers_of(packed, place, scales, zeros, nibble, HAS_ZEROS, IS_SCALED, values.dtype)
        part = tl.dot(numbers, values, part, input_precision="ieee")
    if IS_SCALED:
        return acc + part
    scale = tl.load(scales + row * groups + tl.min(w) * 8 // GROUP).to(tl.float32)
    return acc + part * scale[:, None]


@triton.jit(do_not_specialize=["M"])  # one program for every number of rows
def int4_skinny_kernel(  # type: ignore[no-untyped-def]
    x, words, scales, zeros, bias, residual, out, M, N, K: tl.constexpr, act_to, stride_x, stride_residual,
    stride_out, partial, arrivals, GROUP: tl.constexpr,
    ACT: tl.constexpr, GATED: tl.constexpr, HAS_ZEROS: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, SPLITS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The same where eight numbers are one word: word `j` of 64 columns has columns `j`, `j + 8` and so on."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    row = tl.minimum(n, N - 1)
    step: tl.constexpr = BLOCK_K // 8
    word = tl.arange(0, step)
    x_tile = x + tl.minimum(m, M - 1)[None, :] * stride_x + (word // 8 * 64 + word % 8)[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    acc2 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    first, last = 0, K // 8
    if SPLITS > 1:
        share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * step
        first = tl.program_id(2) * share
        last = tl.minimum(first + share, K // 8)
    for start in range(first, last, step):
        acc = _int4_step(
            acc, words, x_tile + start * 8, start + word, last, row, scales, zeros, K, GROUP, HAS_ZEROS,
            GROUP % BLOCK_K != 0, EVEN_K,
        )  # fmt: skip
        if GATED:
            acc2 = _int4_step(
                acc2, words, x_tile + start * 8, start + word, last, row + N, scales, zeros, K, GROUP, HAS_ZEROS,
                GROUP % BLOCK_K != 0, EVEN_K,
            )  # fmt: skip
    is_last = True
    if SPLITS > 1:
        acc, is_last = _sum_of_splits(acc, partial, arrivals, BLOCK_M, BLOCK_N, SPLITS)
    if is_last:
        _finish(
            acc, acc2, n, m, M, N, bias, residual, out, act_to, stride_residual, stride_out, ACT, GATED, HAS_BIAS,
            HAS_RESIDUAL,
        )  # fmt: skip
