"""Attention over the paged cache for one new token per sequence, whose keys may be split among programs.

The cache of a layer is `[blocks, kv heads, block size, head size]`, once for keys and once for values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from trireme.llm.kernels.elementwise import as_kept
from trireme.llm.kernels.launch import overlap


@triton.jit
def _turned(low, high, cos, sin):  # type: ignore[no-untyped-def]
    """Both halves of heads, rotated."""
    wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
    return (wide_low * cos - wide_high * sin).to(low.dtype), (wide_high * cos + wide_low * sin).to(low.dtype)


@triton.jit
def _attended(  # type: ignore[no-untyped-def]
    acc_low, acc_high, peak, total, q_low, q_high, begin, end, k_cache, v_cache, table, kv_head, half, in_half, scale,
    softcap, KV_HEADS: tl.constexpr, HEAD: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
    USES_DOT: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Goes on over the keys from `begin` to `end`."""
    for start in range(begin, end, STEP):
        t = start + tl.arange(0, STEP)
        valid = t < end
        block = tl.load(table + t // BLOCK, mask=valid, other=0).to(tl.int64)
        place = ((block * KV_HEADS + kv_head) * BLOCK + t % BLOCK) * HEAD
        inside = valid[:, None] & in_half[None, :]
        kind = q_low.dtype
        keys_low = tl.load(k_cache + place[:, None] + half[None, :], mask=inside, other=0.0).to(kind)
        keys_high = tl.load(k_cache + place[:, None] + HALF + half[None, :], mask=inside, other=0.0).to(kind)
        values_low = tl.load(v_cache + place[:, None] + half[None, :], mask=inside, other=0.0).to(kind)
        values_high = tl.load(v_cache + place[:, None] + HALF + half[None, :], mask=inside, other=0.0).to(kind)
        if USES_DOT:
            scores = tl.dot(q_low, tl.trans(keys_low), input_precision="ieee")
            scores = tl.dot(q_high, tl.trans(keys_high), scores, input_precision="ieee") * scale
        else:
            product = q_low.to(tl.float32)[:, None, :] * keys_low.to(tl.float32)[None, :, :]
            product += q_high.to(tl.float32)[:, None, :] * keys_high.to(tl.float32)[None, :, :]
            scores = tl.sum(product, 2) * scale
        if HAS_SOFTCAP:
            scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
        scores = tl.where(valid[None, :], scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - new_peak[:, None])
        fade = tl.exp(peak - new_peak)
        total = total * fade + tl.sum(weights, 1)
        if USES_DOT:
            acc_low = tl.dot(weights.to(kind), values_low, acc_low * fade[:, None], input_precision="ieee")
            acc_high = tl.dot(weights.to(kind), values_high, acc_high * fade[:, None], input_precision="ieee")
        else:
            acc_low = acc_low * fade[:, None] + tl.sum(weights[:, :, None] * values_low.to(tl.float32)[None, :, :], 1)
            acc_high = acc_high * fade[:, None] + tl.sum(
                weights[:, :, None] * values_high.to(tl.float32)[None, :, :], 1
            )
        peak = new_peak
    return acc_low, acc_high, peak, total


@triton.jit
def _nothing_yet(GROUP_TILE: tl.constexpr, HALF_TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums before the first key: both halves, the peak and the weights."""
    empty = tl.zeros([GROUP_TILE, HALF_TILE], tl.float32)
    return empty, empty, tl.full([GROUP_TILE], float("-inf"), tl.float32), tl.zeros([GROUP_TILE], tl.float32)


@triton.jit
def _sum_of_parts(  # type: ignore[no-untyped-def]
    partial, partial_state, first, splits, half, in_group, stored, GROUP_TILE: tl.constexpr, HALF_TILE: tl.constexpr,
    HEAD: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """What the programs with a part of the keys each have left, from the places `first` on."""
    acc_low, acc_high, peak, total = _nothing_yet(GROUP_TILE, HALF_TILE)
    for index in range(splits):
        place = first + index
        other = tl.load(partial_state + place * 2, mask=in_group, other=float("-inf"), cache_modifier=".cg")
        weight = tl.load(partial_state + place * 2 + 1, mask=in_group, other=0.0, cache_modifier=".cg")
        new_peak = tl.maximum(peak, other)
        settled = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        fade, grow = tl.exp(peak - settled), tl.exp(other - settled)
        own = partial + place[:, None] * HEAD + half[None, :]
        low = tl.load(own, mask=stored, other=0.0, cache_modifier=".cg")
        high = tl.load(own + HALF, mask=stored, other=0.0, cache_modifier=".cg")
        acc_low = acc_low * fade[:, None] + low * grow[:, None]
        acc_high = acc_high * fade[:, None] + high * grow[:, None]
        total = total * fade + weight * grow
        peak = new_peak
    return acc_low, acc_high, total


@triton.jit
def _halves(place, inside, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """Both halves of heads, from the places of the first."""
    return tl.load(place, mask=inside, other=0.0), tl.load(place + HALF, mask=inside, other=0.0)


@triton.jit
def _begun_with_new(  # type: ignore[no-untyped-def]
    total, acc_low, acc_high, q_low, q_high, k_low, k_high, v_low, v_high, k_cache, v_cache, table, position, kv_head,
    tile, half, in_half, scale, softcap, KV_HEADS: tl.constexpr, HEAD: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Sums that begin with the new token: from its registers, and into the cache."""
    block = tl.load(table + position // BLOCK).to(tl.int64)
    place = ((block * KV_HEADS + kv_head) * BLOCK + position % BLOCK) * HEAD
    if tile == 0:
        tl.store(k_cache + place + half, k_low, mask=in_half)
        tl.store(k_cache + place + HALF + half, k_high, mask=in_half)
        tl.store(v_cache + place + half, v_low, mask=in_half)
        tl.store(v_cache + place + HALF + half, v_high, mask=in_half)
    own = tl.sum(q_low.to(tl.float32) * k_low.to(tl.float32)[None, :], 1)
    own += tl.sum(q_high.to(tl.float32) * k_high.to(tl.float32)[None, :], 1)
    own = own * scale
    if HAS_SOFTCAP:
        own = softcap * (2.0 * tl.sigmoid(2.0 * own / softcap) - 1.0)
    acc_low += v_low.to(tl.float32)[None, :]
    acc_high += v_high.to(tl.float32)[None, :]
    return own, total + 1.0, acc_low, acc_high


@triton.jit
def _leave_part(  # type: ignore[no-untyped-def]
    partial, partial_state, counter, place, acc_low, acc_high, peak, total, half, in_group, stored,
    HEAD: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Leaves a program's part for the last to arrive; how many were there before."""
    tl.store(partial + place[:, None] * HEAD + half[None, :], acc_low, mask=stored)
    tl.store(partial + place[:, None] * HEAD + HALF + half[None, :], acc_high, mask=stored)
    tl.store(partial_state + place * 2, peak, mask=in_group)
    tl.store(partial_state + place * 2 + 1, total, mask=in_group)
    tl.debug_barrier()
    return tl.atomic_add(counter, 1, sem="acq_rel")


@triton.jit
def _finish(target, acc_low, acc_high, total, stored, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums by their weights, into the result."""
    safe = tl.where(total > 0, total, 1.0)
    tl.store(target, (acc_low / safe[:, None]).to(target.dtype.element_ty), mask=stored)
    tl.store(target + HALF, (acc_high / safe[:, None]).to(target.dtype.element_ty), mask=stored)


@triton.jit(do_not_specialize=["splits"])
def _decode_kernel(  # type: ignore[no-untyped-def]
    qkv, k_cache, v_cache, tables, slots, positions, cosines, out, partial, partial_state, arrivals, scale, softcap,
    window, stride_qkv, stride_out, table_width, splits, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr, GROUP_TILE: tl.constexpr, TILES: tl.constexpr, HEAD: tl.constexpr, HALF: tl.constexpr,
    HALF_TILE: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, IS_SPLIT: tl.constexpr, ROTATES: tl.constexpr,
    USES_DOT: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_WINDOW: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """A row, some query heads of one key/value head and a part of the keys by program; the last to arrive adds up."""
    row, split = tl.program_id(0), tl.program_id(2)
    kv_head, tile = tl.program_id(1) // TILES, tl.program_id(1) % TILES
    position = tl.load(positions + row)
    table = tables + tl.load(slots + row).to(tl.int64) * table_width
    half = tl.arange(0, HALF_TILE)
    in_half = half < HALF
    group = tile * GROUP_TILE + tl.arange(0, GROUP_TILE)
    in_group = group < GROUP
    stored = in_group[:, None] & in_half[None, :]
    head = kv_head * GROUP + group
    base = qkv + row.to(tl.int64) * stride_qkv
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    q_low, q_high = _halves(base + head[:, None] * HEAD + half[None, :], stored, HALF)
    k_low, k_high = _halves(base + (HEADS + kv_head) * HEAD + half, in_half, HALF)
    v_low, v_high = _halves(base + (HEADS + KV_HEADS + kv_head) * HEAD + half, in_half, HALF)
    if ROTATES:
        cos, sin = _halves(cosines + position.to(tl.int64) * 2 * HALF + half, in_half, HALF)
        q_low, q_high = _turned(q_low, q_high, cos[None, :], sin[None, :])
        k_low, k_high = _turned(k_low, k_high, cos, sin)
    k_low, k_high = as_kept(k_low, k_cache), as_kept(k_high, k_cache)  # as those will see them who read it later
    v_low, v_high = as_kept(v_low, v_cache), as_kept(v_high, v_cache)
    first = tl.maximum(position - window + 1, 0) if HAS_WINDOW else 0
    share = tl.cdiv(tl.cdiv(position - first, STEP), splits) * STEP
    begin = first + split * share
    acc_low, acc_high, peak, total = _nothing_yet(GROUP_TILE, HALF_TILE)
    if split == splits - 1:
        peak, total, acc_low, acc_high = _begun_with_new(
            total, acc_low, acc_high, q_low, q_high, k_low, k_high, v_low, v_high, k_cache, v_cache, table, position,
            kv_head, tile, half, in_half, scale, softcap, KV_HEADS, HEAD, HALF, BLOCK, HAS_SOFTCAP,
        )  # fmt: skip
    acc_low, acc_high, peak, total = _attended(
        acc_low, acc_high, peak, total, q_low, q_high, begin, tl.minimum(begin + share, position), k_cache, v_cache,
        table, kv_head, half, in_half, scale, softcap, KV_HEADS, HEAD, HALF, BLOCK, STEP, USES_DOT, HAS_SOFTCAP,
    )  # fmt: skip
    target = out + row.to(tl.int64) * stride_out + head[:, None] * HEAD + half[None, :]
    if not IS_SPLIT:
        _finish(target, acc_low, acc_high, total, stored, HALF)
    else:
        place = (row * HEADS + head) * splits
        counter = arrivals + (row * KV_HEADS + kv_head) * TILES + tile
        before = _leave_part(
            partial, partial_state, counter, place + split, acc_low, acc_high, peak, total, half, in_group, stored,
            HEAD, HALF,
        )  # fmt: skip
        if before == splits - 1:
            tl.store(counter, 0)
            acc_low, acc_high, total = _sum_of_parts(
                partial, partial_state, place, splits, half, in_group, stored, GROUP_TILE, HALF_TILE, HEAD, HALF
            )
            _finish(target, acc_low, acc_high, total, stored, HALF)


class DecodeScratch:
    """What programs of one launch leave for each other; launches follow one another, so one serves all layers."""

    def __init__(self, rows: int, heads: int, head_size: int, splits: int, device: torch.device) -> None:
        self.partial = torch.empty(rows * heads * splits * head_size, dtype=torch.float32, device=device)
        self.state = torch.empty(rows * heads * splits * 2, dtype=torch.float32, device=device)
        self.arrivals = torch.zeros(rows * heads, dtype=torch.int32, device=device)


@dataclass(frozen=True, slots=True)
class DecodeTiling:
    """How attention of single tokens is cut into programs."""

    group_tile: int
    """Query heads in a program."""
    step: int
    """Keys looked at together."""
    warps: int
    stages: int
    uses_dot: bool
    """Whether matrix units are used, which take at least 16 rows."""
    crowd: int = 2
    """Keys are split among at most so many programs for each processor, those of all rows counted."""
    least_keys: int = 256
    """And so that each of them has as many."""


def decode_tiling_for(rows: int, heads: int, kv_heads: int, head_size: int) -> DecodeTiling:
    """The cut for so many rows, as measured on an H200 by `benchmarks/llm_attention.py`."""
    group = heads // kv_heads
    if head_size > 128:
        return DecodeTiling(16, 32, 4, 2, True)
    if group == 1 and rows * heads <= 64:
        return DecodeTiling(1, 32, 2, 2, False, least_keys=32)
    if group > 16 and rows > 64:
        return DecodeTiling(64, 64, 4, 3, True, crowd=4)
    if group > 16 and rows >= 32:
        return DecodeTiling(32, 64, 4, 2, True, crowd=4, least_keys=128)
    if rows * kv_heads >= (1024 if group == 1 else 512):
        return DecodeTiling(16, 32, 2, 4, True)
    return DecodeTiling(16, 64, 4, 2, True) if group == 1 else DecodeTiling(16, 128, 4, 3, True)


def splits_for(rows: int, heads: int, kv_heads: int, head_size: int, processors: int, longest: int) -> int:
    """Among how many programs the keys of a sequence are split: so that all processors have work worth a merge."""
    tiling = decode_tiling_for(rows, heads, kv_heads, head_size)
    programs = rows * kv_heads * -(-heads // kv_heads // tiling.group_tile)
    wanted = min(tiling.crowd * processors // programs, longest // tiling.least_keys, 64)
    return 1 << max(0, wanted.bit_length() - 1)


def decode_attention(
    qkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    tables: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor | None,
    out: torch.Tensor,
    scratch: DecodeScratch,
    *,
    heads: int,
    scale: float,
    splits: int,
    softcap: float = 0.0,
    window: int = 0,
    tiling: DecodeTiling | None = None,
) -> None:
    """Attention of one new token per row, whose key and value it rotates (with `cosines`) and puts into the cache."""
    _, kv_heads, block, head_size = k_cache.shape
    group = heads // kv_heads
    tiling = tiling or decode_tiling_for(qkv.shape[0], heads, kv_heads, head_size)
    if qkv.element_size() > 2:
        tiling = replace(tiling, step=min(32, tiling.step), stages=2)
    tiles = triton.cdiv(group, tiling.group_tile)
    half = head_size // 2
    _decode_kernel[(qkv.shape[0], kv_heads * tiles, splits)](
        qkv, k_cache, v_cache, tables, slots, positions, cosines, out, scratch.partial, scratch.state, scratch.arrivals,
        scale, softcap, window, qkv.stride(0), out.stride(0), tables.stride(0), splits, HEADS=heads, KV_HEADS=kv_heads,
        GROUP=group, GROUP_TILE=tiling.group_tile, TILES=tiles, HEAD=head_size, HALF=half,
        HALF_TILE=max(16, triton.next_power_of_2(half)), BLOCK=block, STEP=tiling.step, IS_SPLIT=splits > 1,
        ROTATES=cosines is not None, USES_DOT=tiling.uses_dot, HAS_SOFTCAP=softcap > 0, HAS_WINDOW=window > 0,
        num_warps=tiling.warps, num_stages=tiling.stages, **overlap(),
    )  # fmt: skip
