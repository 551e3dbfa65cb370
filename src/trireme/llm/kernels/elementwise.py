"""The small steps between products: norms, rotation and storing of keys, activations, embeddings."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trireme.llm.kernels.activations import activate
from trireme.llm.kernels.launch import overlap

NO_TOKEN = -1
"""In place of a token where the logits are infinite or not numbers."""


@triton.jit
def _norm_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, out, N, eps, offset, stride_x, stride_out, IS_LAYER: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr, TILE: tl.constexpr, OVERLAPS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, TILE)
    inside = n < N
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    value = tl.load(x + row * stride_x + n, mask=inside, other=0.0).to(tl.float32)
    if IS_LAYER:
        mean = tl.sum(value, 0) / N
        value = tl.where(inside, value - mean, 0.0)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / N + eps)
    if HAS_WEIGHT:
        value = value * (tl.load(weight + n, mask=inside, other=0.0).to(tl.float32) + offset)
    if HAS_BIAS:
        value += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * stride_out + n, value.to(out.dtype.element_ty), mask=inside)


def norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    is_layer: bool,
    offset: float = 0.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """RMS or layer norm of each row."""
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device) if out is None else out
    tile = triton.next_power_of_2(n)
    _norm_kernel[(rows,)](
        x, weight, bias, out, n, eps, offset, x.stride(0), out.stride(0), IS_LAYER=is_layer,
        HAS_WEIGHT=weight is not None, HAS_BIAS=bias is not None, TILE=tile, num_warps=8 if tile >= 4096 else 4,
        **overlap(),
    )  # fmt: skip
    return out


@triton.jit
def _gate_kernel(x, out, N, stride_x, stride_out, ACT: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = n < N
    gate = tl.load(x + row * stride_x + n, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * stride_x + N + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * stride_out + n, (activate(gate, ACT) * up).to(out.dtype.element_ty), mask=inside)


def gate(x: torch.Tensor, activation: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """The first half of each row, activated, times the second half."""
    rows, n = x.shape[0], x.shape[1] // 2
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device) if out is None else out
    _gate_kernel[(rows, triton.cdiv(n, 1024))](
        x, out, n, x.stride(0), out.stride(0), ACT=activation, TILE=1024, num_warps=4
    )
    return out


@triton.jit
def _activation_kernel(x, out, N, stride_x, stride_out, ACT: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = n < N
    value = tl.load(x + row * stride_x + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * stride_out + n, activate(value, ACT).to(out.dtype.element_ty), mask=inside)


def activate_rows(x: torch.Tensor, activation: int, out: torch.Tensor) -> None:
    """Rows may lie apart; `out` may be `x`."""
    rows, n = x.shape
    _activation_kernel[(rows, triton.cdiv(n, 2048))](
        x, out, n, x.stride(0), out.stride(0), ACT=activation, TILE=2048, num_warps=4
    )


@triton.jit
def as_kept(value, cache):  # type: ignore[no-untyped-def]
    """Keys or values in the cache's numbers; what is too large for eight bits becomes the largest of them."""
    if cache.dtype.element_ty == tl.float8e4nv:
        value = tl.minimum(tl.maximum(value.to(tl.float32), -448.0), 448.0)
    return value.to(cache.dtype.element_ty)


@triton.jit
def _rotated(  # type: ignore[no-untyped-def]
    value, base, d, inside, position, which, cosines, qk_weight, qk_bias, eps, offset,
    HEAD: tl.constexpr, HALF: tl.constexpr, INTERLEAVED: tl.constexpr, QK_NORM: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """A query's or key's head, normalised and rotated; `which` is where its norm's weights begin."""
    wide = value.to(tl.float32)
    mean = 0.0
    spread = 1.0
    if QK_NORM == 2:
        mean = tl.sum(wide, 0) / HEAD
        wide = tl.where(inside, wide - mean, 0.0)
    if QK_NORM != 0:
        spread = tl.rsqrt(tl.sum(wide * wide, 0) / HEAD + eps)
        weight = tl.load(qk_weight + which + d, mask=inside, other=0.0).to(tl.float32) + offset
        wide = wide * spread * weight
        if HAS_BIAS:
            wide += tl.load(qk_bias + which + d, mask=inside, other=0.0).to(tl.float32)
    if HALF > 0:
        if INTERLEAVED:
            angle = d // 2
            other = d + 1 - 2 * (d % 2)
            sign = tl.where(d % 2 == 0, -1.0, 1.0)
        else:
            angle = d % HALF
            other = tl.where(d < HALF, d + HALF, d - HALF)
            sign = tl.where(d < HALF, -1.0, 1.0)
        turned = d < 2 * HALF
        cos = tl.load(cosines + position.to(tl.int64) * 2 * HALF + angle, mask=turned, other=1.0)
        sin = tl.load(cosines + position.to(tl.int64) * 2 * HALF + HALF + angle, mask=turned, other=0.0)
        partner = tl.load(base + other, mask=turned, other=0.0).to(tl.float32)
        if QK_NORM == 2:
            partner = partner - mean
        if QK_NORM != 0:
            weight = tl.load(qk_weight + which + other, mask=turned, other=0.0).to(tl.float32) + offset
            partner = partner * spread * weight
            if HAS_BIAS:
                partner += tl.load(qk_bias + which + other, mask=turned, other=0.0).to(tl.float32)
        wide = wide * cos + tl.where(turned, partner * sign, 0.0) * sin
    return wide


@triton.jit
def _rotate_kernel(  # type: ignore[no-untyped-def]
    qkv, k_cache, v_cache, tables, slots, positions, cosines, qk_weight, qk_bias, eps, offset,
    stride_qkv, table_width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, INTERLEAVED: tl.constexpr, QK_NORM: tl.constexpr, HAS_BIAS: tl.constexpr,
    STORES: tl.constexpr,
):  # fmt: skip
    """A token and one of its heads by program: normalises and rotates queries and keys, stores keys and values."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    position = tl.load(positions + row)
    d = tl.arange(0, TILE)
    inside = d < HEAD
    base = qkv + row * stride_qkv + head * HEAD
    value = tl.load(base + d, mask=inside, other=0.0)
    is_value = head >= HEADS + KV_HEADS
    if not is_value:
        wide = _rotated(
            value, base, d, inside, position, tl.where(head >= HEADS, HEAD, 0), cosines, qk_weight, qk_bias, eps,
            offset, HEAD, HALF, INTERLEAVED, QK_NORM, HAS_BIAS,
        )  # fmt: skip
        tl.debug_barrier()
        value = wide.to(value.dtype)
        tl.store(base + d, value, mask=inside)
    if STORES:  # noqa: SIM102 - decided while compiling, unlike the other
        if head >= HEADS:
            block = tl.load(tables + slot * table_width + position // BLOCK).to(tl.int64)
            kv_head = tl.where(is_value, head - HEADS - KV_HEADS, head - HEADS)
            place = ((block * KV_HEADS + kv_head) * BLOCK + position % BLOCK) * HEAD
            if is_value:
                tl.store(v_cache + place + d, as_kept(value, v_cache), mask=inside)
            else:
                tl.store(k_cache + place + d, as_kept(value, k_cache), mask=inside)


@triton.jit
def _rotate_halves_kernel(  # type: ignore[no-untyped-def]
    qkv, k_cache, v_cache, tables, slots, positions, cosines, stride_qkv, table_width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, PER_PROGRAM: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The common case, several heads of a token by program: whole heads, rotated by halves, without norms.

    Keys are rotated on their way into the cache only.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * PER_PROGRAM + tl.arange(0, PER_PROGRAM)
    slot = tl.load(slots + row).to(tl.int64)
    position = tl.load(positions + row)
    half = tl.arange(0, TILE)
    in_half = half < HALF
    inside = (head < HEADS + 2 * KV_HEADS)[:, None] & in_half[None, :]
    base = qkv + row * stride_qkv + head[:, None] * HEAD + half[None, :]
    low, high = tl.load(base, mask=inside, other=0.0), tl.load(base + HALF, mask=inside, other=0.0)
    cos = tl.load(cosines + position.to(tl.int64) * 2 * HALF + half, mask=in_half, other=1.0)[None, :]
    sin = tl.load(cosines + position.to(tl.int64) * 2 * HALF + HALF + half, mask=in_half, other=0.0)[None, :]
    turns = (head < HEADS + KV_HEADS)[:, None]
    wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
    low = tl.where(turns, wide_low * cos - wide_high * sin, wide_low).to(low.dtype)
    high = tl.where(turns, wide_high * cos + wide_low * sin, wide_high).to(high.dtype)
    is_query = (head < HEADS)[:, None] & in_half[None, :]
    tl.store(base, low, mask=is_query)
    tl.store(base + HALF, high, mask=is_query)
    block = tl.load(tables + slot * table_width + position // BLOCK).to(tl.int64)
    kv_head = tl.where(turns, (head - HEADS)[:, None], (head - HEADS - KV_HEADS)[:, None])
    place = ((block * KV_HEADS + kv_head) * BLOCK + position % BLOCK) * HEAD + half[None, :]
    is_key = (head >= HEADS)[:, None] & turns & in_half[None, :]
    is_value = (head >= HEADS + KV_HEADS)[:, None] & inside
    low, high = as_kept(low, k_cache), as_kept(high, k_cache)
    tl.store(k_cache + place, low, mask=is_key)
    tl.store(k_cache + place + HALF, high, mask=is_key)
    tl.store(v_cache + place, low, mask=is_value)
    tl.store(v_cache + place + HALF, high, mask=is_value)


def rotate_and_store(
    qkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    tables: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor | None,
    *,
    heads: int,
    is_interleaved: bool = False,
    qk_norm: int = 0,
    qk_weight: torch.Tensor | None = None,
    qk_bias: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    stores: bool = True,
) -> None:
    """Queries in place; keys and values into the cache, unless somebody else stores them: then keys in place too."""
    _, kv_heads, block, head_size = k_cache.shape
    half = cosines.shape[1] // 2 if cosines is not None else 0
    if cosines is not None and 2 * half == head_size and not is_interleaved and not qk_norm and stores:
        per_program = max(4, min(32, triton.next_power_of_2(heads + 2 * kv_heads)))
        _rotate_halves_kernel[(qkv.shape[0], triton.cdiv(heads + 2 * kv_heads, per_program))](
            qkv, k_cache, v_cache, tables, slots, positions, cosines, qkv.stride(0), tables.stride(0), HEADS=heads,
            KV_HEADS=kv_heads, HEAD=head_size, HALF=half, TILE=triton.next_power_of_2(half), BLOCK=block,
            PER_PROGRAM=per_program, num_warps=4 if per_program == 32 else 2, **overlap(),
        )  # fmt: skip
        return
    _rotate_kernel[(qkv.shape[0], heads + (2 if stores else 1) * kv_heads)](
        qkv, k_cache, v_cache, tables, slots, positions, cosines, qk_weight, qk_bias, eps, offset, qkv.stride(0),
        tables.stride(0), HEADS=heads, KV_HEADS=kv_heads, HEAD=head_size, HALF=half,
        TILE=triton.next_power_of_2(head_size), BLOCK=block, INTERLEAVED=is_interleaved, QK_NORM=qk_norm,
        HAS_BIAS=qk_bias is not None, STORES=stores, num_warps=1,
    )  # fmt: skip


@triton.jit
def _begin_kernel(  # type: ignore[no-untyped-def]
    rows, last_tokens, embedding, tables, slots, positions, x, N, table_width, scale, BLOCK: tl.constexpr,
    TILE: tl.constexpr
):  # fmt: skip
    """A row of the packed step by program: `slot, position, new block or -1, token or -1`."""
    row = tl.program_id(0)
    slot = tl.load(rows + row * 4)
    position = tl.load(rows + row * 4 + 1)
    fresh = tl.load(rows + row * 4 + 2)
    token = tl.load(rows + row * 4 + 3)
    if tl.program_id(1) == 0:
        tl.store(slots + row, slot)
        tl.store(positions + row, position)
        if fresh >= 0:
            tl.store(tables + slot.to(tl.int64) * table_width + position // BLOCK, fresh)
    if token < 0:
        token = tl.load(last_tokens + slot)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    value = tl.load(embedding + token.to(tl.int64) * N + n, mask=n < N, other=0.0)
    value = (value.to(tl.float32) * scale).to(x.dtype.element_ty)
    tl.store(x + row.to(tl.int64) * N + n, value, mask=n < N)


def begin_decode(
    rows: torch.Tensor,
    last_tokens: torch.Tensor,
    embedding: torch.Tensor,
    tables: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    x: torch.Tensor,
    block: int,
    scale: float,
) -> None:
    """Unpacks a step's rows, one for each token, and looks up the embeddings."""
    n = x.shape[1]
    _begin_kernel[(rows.shape[0], triton.cdiv(n, 1024))](
        rows, last_tokens, embedding, tables, slots, positions, x, n, tables.stride(0), scale, BLOCK=block, TILE=1024,
        num_warps=4,
    )  # fmt: skip


@triton.jit
def _take_kernel(logits, likeliest, slots, last_tokens, tokens, stride, NOTHING: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    token = tl.load(likeliest + row)
    is_number = tl.abs(tl.load(logits + row.to(tl.int64) * stride + token).to(tl.float32)) < float("inf")
    tl.store(tokens + row, tl.where(is_number, token, NOTHING).to(tl.int32))
    tl.store(last_tokens + tl.load(slots + row), tl.where(is_number, token, 0).to(tl.int32))


def take_largest(logits: torch.Tensor, slots: torch.Tensor, last_tokens: torch.Tensor) -> torch.Tensor:
    """The most likely token of each row, or NO_TOKEN; it becomes the input of its slot's next step."""
    likeliest = logits.argmax(-1)  # NaN is the largest of its row
    tokens = torch.empty(len(likeliest), dtype=torch.int32, device=logits.device)
    _take_kernel[(len(likeliest),)](
        logits, likeliest, slots, last_tokens, tokens, logits.stride(0), NOTHING=NO_TOKEN, num_warps=1
    )
    return tokens
