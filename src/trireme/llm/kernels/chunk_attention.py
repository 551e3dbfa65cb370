"""Attention over the paged cache for chunks of prompts, whose keys and values are in it already."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trireme.llm.kernels.chunk_size import CHUNK_ROWS


@triton.jit
def _chunk_kernel(  # type: ignore[no-untyped-def]
    qkv,
    k_cache,
    v_cache,
    tables,
    tiles,
    out,
    scale,
    softcap,
    window,
    stride_qkv,
    stride_out,
    table_width,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    HEAD_TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
):
    """Some rows of a chunk and a head by program. `tiles` has slot, first row, row count and first position of each."""
    tile = tiles + tl.program_id(0) * 4
    head = tl.program_id(1)
    slot = tl.load(tile)
    first_row = tl.load(tile + 1)
    count = tl.load(tile + 2)
    first_position = tl.load(tile + 3)
    kv_head = head // GROUP
    table = tables + slot.to(tl.int64) * table_width
    d = tl.arange(0, HEAD_TILE)
    in_head = d < HEAD
    r = tl.arange(0, ROWS)
    rows = (first_row + r).to(tl.int64)
    q = tl.load(
        qkv + rows[:, None] * stride_qkv + head * HEAD + d[None, :],
        mask=(r < count)[:, None] & in_head[None, :],
        other=0.0,
    )
    kind = q.dtype
    position = first_position + r
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_TILE], tl.float32)
    begin = 0
    if HAS_WINDOW:
        begin = tl.maximum(first_position - window + 1, 0) // STEP * STEP
    end = first_position + count
    for start in range(begin, end, STEP):
        t = start + tl.arange(0, STEP)
        valid = t < end
        block = tl.load(table + t // BLOCK, mask=valid, other=0).to(tl.int64)
        place = ((block * KV_HEADS + kv_head) * BLOCK + t % BLOCK) * HEAD
        inside = valid[:, None] & in_head[None, :]
        keys = tl.load(k_cache + place[:, None] + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        if HAS_SOFTCAP:
            scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
        seen = (t[None, :] <= position[:, None]) & valid[None, :]
        if HAS_WINDOW:
            seen = seen & (t[None, :] > position[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        settled = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp(scores - settled[:, None])
        fade = tl.exp(peak - settled)
        total = total * fade + tl.sum(weights, 1)
        values = tl.load(v_cache + place[:, None] + d[None, :], mask=inside, other=0.0)
        acc = tl.dot(weights.to(kind), values, acc * fade[:, None], input_precision="ieee")
        peak = new_peak
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(
        out + rows[:, None] * stride_out + head * HEAD + d[None, :],
        acc.to(out.dtype.element_ty),
        mask=(r < count)[:, None] & in_head[None, :],
    )


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
) -> None:
    """Attention of chunks whose keys and values are in the cache already; `tiles` is `[count, 4]` of int32."""
    _, kv_heads, block, head_size = k_cache.shape
    head_tile = max(16, triton.next_power_of_2(head_size))
    _chunk_kernel[(tiles.shape[0], heads)](
        qkv,
        k_cache,
        v_cache,
        tables,
        tiles,
        out,
        scale,
        softcap,
        window,
        qkv.stride(0),
        out.stride(0),
        tables.stride(0),
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        HEAD=head_size,
        HEAD_TILE=head_tile,
        BLOCK=block,
        ROWS=CHUNK_ROWS,
        STEP=64 if head_tile <= 128 else 32,
        HAS_SOFTCAP=softcap > 0,
        HAS_WINDOW=window > 0,
        num_warps=4,
        num_stages=3 if head_tile <= 128 else 2,
    )
