"""Attention over the paged cache for chunks of prompts, whose keys and values are in it already."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trireme.llm.kernels.chunk_size import CHUNK_ROWS
from trireme.llm.kernels.launch import overlap


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    q, acc, peak, total, begin, end, position, k_cache, v_cache, table, kv_head, scale, softcap, window,
    KV_HEADS: tl.constexpr, HEAD: tl.constexpr, HEAD_TILE: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_WINDOW: tl.constexpr, IS_EDGE: tl.constexpr,
):  # fmt: skip
    """Goes on over the keys from `begin` to `end`; unless at the edge, every row sees all of them."""
    d = tl.arange(0, HEAD_TILE)
    for start in range(begin, end, STEP):
        t = start + tl.arange(0, STEP)
        if IS_EDGE:
            block = tl.load(table + t // BLOCK, mask=t < end, other=0).to(tl.int64)
        else:
            block = tl.load(table + t // BLOCK).to(tl.int64)
        place = (((block * KV_HEADS + kv_head) * BLOCK + t % BLOCK) * HEAD)[:, None] + d[None, :]
        if IS_EDGE or HEAD != HEAD_TILE:
            inside = (t < end)[:, None] & (d < HEAD)[None, :]
            keys = tl.load(k_cache + place, mask=inside, other=0.0).to(q.dtype)
            values = tl.load(v_cache + place, mask=inside, other=0.0).to(q.dtype)
        else:
            keys = tl.load(k_cache + place).to(q.dtype)
            values = tl.load(v_cache + place).to(q.dtype)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        if HAS_SOFTCAP:
            scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
        if IS_EDGE:
            seen = (t[None, :] <= position[:, None]) & (t < end)[None, :]
            if HAS_WINDOW:
                seen = seen & (t[None, :] > position[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        settled = tl.where(new_peak == float("-inf"), 0.0, new_peak) if IS_EDGE else new_peak
        weights = tl.exp(scores - settled[:, None])
        fade = tl.exp(peak - settled)
        total = total * fade + tl.sum(weights, 1)
        acc = tl.dot(weights.to(q.dtype), values, acc * fade[:, None], input_precision="ieee")
        peak = new_peak
    return acc, peak, total


@triton.jit
def _sum_of_parts(  # type: ignore[no-untyped-def]
    partial, partial_state, first, sharers, inner, r, ROWS: tl.constexpr, HEAD_TILE: tl.constexpr,
):  # fmt: skip
    """What the programs with a part of the keys each have left, from place `first` on."""
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_TILE], tl.float32)
    for begin in range(0, sharers, 4):
        for offset in tl.static_range(4):  # which are read at once
            index = tl.minimum(begin + offset, sharers - 1)
            state = partial_state + (first + index) * 2 * ROWS + r
            other = tl.load(state, cache_modifier=".cg")
            weight = tl.load(state + ROWS, cache_modifier=".cg")
            part = tl.load(partial + (first + index) * ROWS * HEAD_TILE + inner, cache_modifier=".cg")
            other = tl.where(begin + offset < sharers, other, float("-inf"))
            new_peak = tl.maximum(peak, other)
            settled = tl.where(new_peak == float("-inf"), 0.0, new_peak)
            fade, grow = tl.exp(peak - settled), tl.exp(other - settled)
            acc = acc * fade[:, None] + part * grow[:, None]
            total = total * fade + weight * grow
            peak = new_peak
    return acc, total


@triton.jit
def _leave_part(  # type: ignore[no-untyped-def]
    partial, partial_state, counter, own, inner, r, acc, peak, total, ROWS: tl.constexpr, HEAD_TILE: tl.constexpr,
):  # fmt: skip
    """Leaves a program's part for the last to arrive; how many were there before."""
    tl.store(partial + own * ROWS * HEAD_TILE + inner, acc)
    tl.store(partial_state + own * 2 * ROWS + r, peak)
    tl.store(partial_state + own * 2 * ROWS + ROWS + r, total)
    tl.debug_barrier()
    return tl.atomic_add(counter, 1, sem="acq_rel")


@triton.jit
def _own_share(begin, edge, end, splits, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """This program's part of the keys, with its edge, and how many programs have one."""
    steps = tl.cdiv(end - begin, STEP)
    share = tl.maximum(tl.cdiv(steps, splits), 1)
    begin += tl.program_id(1) * share * STEP
    end = tl.minimum(begin + share * STEP, end)
    return begin, tl.minimum(tl.maximum(edge, begin), end), end, tl.cdiv(steps, share)


@triton.jit
def _chunk_kernel(  # type: ignore[no-untyped-def]
    qkv, k_cache, v_cache, tables, tiles, out, partial, partial_state, arrivals, scale, softcap, window,
    stride_qkv, stride_out, table_width, splits,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, HEAD_TILE: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_WINDOW: tl.constexpr,
    IS_SPLIT: tl.constexpr, IS_UNIFORM: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Some rows of a chunk, a head and, where keys are split, a part of them by program; the last to arrive adds up.

    `tiles` has slot, first row, row count and first position of each.
    """
    tile, head = tiles + tl.program_id(2) * 4, tl.program_id(0)
    first_row, count, first_position = tl.load(tile + 1), tl.load(tile + 2), tl.load(tile + 3)
    if count == 0:  # nobody's: the host has written this before the step, so there is nothing to wait for
        return
    kv_head, table = head // GROUP, tables + tl.load(tile).to(tl.int64) * table_width
    begin = 0
    if HAS_WINDOW:
        begin = tl.maximum(first_position - window + 1, 0) // STEP * STEP
    end = first_position + count
    edge = begin if HAS_WINDOW or IS_UNIFORM else first_position // STEP * STEP  # from here on some rows see less
    sharers = 1
    if IS_SPLIT:
        begin, edge, end, sharers = _own_share(begin, edge, end, splits, STEP)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    d, r = tl.arange(0, HEAD_TILE), tl.arange(0, ROWS)
    rows, position = (first_row + r).to(tl.int64), first_position + r
    stored = (r < count)[:, None] & (d < HEAD)[None, :]
    q = tl.load(qkv + rows[:, None] * stride_qkv + head * HEAD + d[None, :], mask=stored, other=0.0)
    peak, total = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_TILE], tl.float32)
    if not IS_SPLIT or tl.program_id(1) < sharers:
        if not HAS_WINDOW and not IS_UNIFORM:
            acc, peak, total = _attend(
                q, acc, peak, total, begin, edge, position, k_cache, v_cache, table, kv_head, scale, softcap, window,
                KV_HEADS, HEAD, HEAD_TILE, BLOCK, STEP, HAS_SOFTCAP, HAS_WINDOW, False,
            )  # fmt: skip
        acc, peak, total = _attend(
            q, acc, peak, total, edge, end, position, k_cache, v_cache, table, kv_head, scale, softcap, window,
            KV_HEADS, HEAD, HEAD_TILE, BLOCK, STEP, HAS_SOFTCAP, HAS_WINDOW, True,
        )  # fmt: skip
        is_last = True
        if IS_SPLIT:
            team = tl.program_id(2) * tl.num_programs(0) + head
            first = team.to(tl.int64) * splits
            inner = r[:, None] * HEAD_TILE + d[None, :]
            before = _leave_part(
                partial, partial_state, arrivals + team, first + tl.program_id(1), inner, r, acc, peak, total, ROWS,
                HEAD_TILE,
            )  # fmt: skip
            is_last = before == sharers - 1
            if is_last:
                tl.store(arrivals + team, 0)
                acc, total = _sum_of_parts(partial, partial_state, first, sharers, inner, r, ROWS, HEAD_TILE)
        if is_last:
            acc = acc / tl.where(total > 0, total, 1.0)[:, None]
            place = out + rows[:, None] * stride_out + head * HEAD + d[None, :]
            tl.store(place, acc.to(out.dtype.element_ty), mask=stored)


class ChunkScratch:
    """What programs with a part of the keys each leave for the last of them; one serves all layers."""

    def __init__(self, tiles: int, heads: int, head_size: int, splits: int, device: torch.device) -> None:
        self.splits = splits
        width = max(16, triton.next_power_of_2(head_size))
        self.partial = torch.empty(tiles * heads * splits * CHUNK_ROWS * width, dtype=torch.float32, device=device)
        self.state = torch.empty(tiles * heads * splits * CHUNK_ROWS * 2, dtype=torch.float32, device=device)
        self.arrivals = torch.zeros(tiles * heads, dtype=torch.int32, device=device)


def chunk_attention(
    qkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    tables: torch.Tensor,
    tiles: torch.Tensor,
    out: torch.Tensor,
    *,
    heads: int,
    scale: float,
    softcap: float = 0.0,
    window: int = 0,
    scratch: ChunkScratch | None = None,
    is_uniform: bool = False,
    tile_rows: int = CHUNK_ROWS,
) -> None:
    """Attention of chunks whose keys and values are in the cache already; `tiles` is `[count, 4]` of int32.

    `tile_rows` is a power of two from 16 on, and as large as the largest tile.

    With `scratch` the keys of a tile are split among programs: for few tiles with many keys. Uniform: all keys go one
    way through the kernel, so that a row's result does not depend on where its chunk was cut.
    """
    _, kv_heads, block, head_size = k_cache.shape
    head_tile = max(16, triton.next_power_of_2(head_size))
    splits = scratch.splits if scratch is not None else 1
    step, warps, ahead = _cut_for(tile_rows, head_tile, qkv.element_size(), splits > 1)
    _chunk_kernel[(heads, splits, tiles.shape[0])](
        qkv, k_cache, v_cache, tables, tiles, out, scratch.partial if scratch is not None else None,
        scratch.state if scratch is not None else None, scratch.arrivals if scratch is not None else None, scale,
        softcap, window, qkv.stride(0), out.stride(0), tables.stride(0), splits, KV_HEADS=kv_heads,
        GROUP=heads // kv_heads, HEAD=head_size, HEAD_TILE=head_tile, BLOCK=block, ROWS=tile_rows, STEP=step,
        HAS_SOFTCAP=softcap > 0, HAS_WINDOW=window > 0, IS_SPLIT=splits > 1, IS_UNIFORM=is_uniform, num_warps=warps,
        num_stages=ahead, **overlap(),
    )  # fmt: skip


def _cut_for(tile_rows: int, head_tile: int, item_size: int, is_split: bool) -> tuple[int, int, int]:
    """Keys of a turn, warps, and turns that are read ahead, as measured on an H200."""
    if head_tile > 128:
        return 32, 4, 2
    if item_size > 2 or (tile_rows == CHUNK_ROWS and not is_split):
        return 32, 4, 2 if head_tile <= 64 else 4
    if is_split and head_tile <= 64:
        return 128 if tile_rows < CHUNK_ROWS else 64, 4, 2
    return 64, 4 if tile_rows == 32 else 8, 2
