"""Tokens drawn from rows of logits in one pass over them. The sampler would need dozens of launches, each of which
takes longer to begin than to compute."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trireme.llm.sampling.noise import FIRST_FACTOR, SECOND_FACTOR, STEP

_TILE = 2048
_STEP = tl.constexpr(STEP)
_FIRST_FACTOR = tl.constexpr(FIRST_FACTOR)
_SECOND_FACTOR = tl.constexpr(SECOND_FACTOR)
_SMALLEST_PART = tl.constexpr(2.0**-52)


@triton.jit
def _forbid_kernel(values, places, bits, N, bytes_each, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.load(places + tl.program_id(0))
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = n < N
    byte = tl.load(bits + tl.program_id(0).to(tl.int64) * bytes_each + n // 8, mask=inside, other=255).to(tl.int32)
    left_out = ((byte >> (n % 8)) & 1) == 0
    tl.store(values + place * N + n, float("-inf"), mask=inside & left_out)


def forbid(values: torch.Tensor, places: torch.Tensor, bits: torch.Tensor) -> None:
    """Leaves of those rows what the `token_bits` allow, in place: `[rows, bytes]`, a row for each place."""
    size = values.shape[1]
    _forbid_kernel[(len(places), triton.cdiv(size, _TILE))](
        values, places, bits, size, bits.shape[1], TILE=_TILE, num_warps=4
    )


@triton.jit
def _noise(key, token):  # type: ignore[no-untyped-def]
    """As `sampling.noise` defines it."""
    bits = key + (token.to(tl.uint64) + 1) * _STEP
    bits = (bits ^ (bits >> 30)) * _FIRST_FACTOR
    bits = (bits ^ (bits >> 27)) * _SECOND_FACTOR
    bits = bits ^ (bits >> 31)
    return -tl.log(-tl.log(((bits >> 12).to(tl.float64) + 0.5) * _SMALLEST_PART))


@triton.jit(do_not_specialize_on_alignment=["values", "keys", "temperatures", "floors"])  # which are parts of tables
def _draw_kernel(  # type: ignore[no-untyped-def]
    values, keys, temperatures, floors, best, best_tokens, N, tiles, stride_keys, stride_temperatures,
    HAS_FLOORS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    n = tile * TILE + tl.arange(0, TILE)
    inside = n < N
    logits = tl.load(values + row * N + n, mask=inside, other=float("-inf"))
    scaled = logits.to(tl.float64) / tl.load(temperatures + row * stride_temperatures)
    key = tl.load(keys + row * stride_keys).to(tl.uint64, bitcast=True)
    sums = tl.where(inside, scaled + _noise(key, n), float("-inf"))
    if HAS_FLOORS:
        sums = tl.where(scaled >= tl.load(floors + row), sums, float("-inf"))
    largest, where = tl.max(sums, 0, return_indices=True)
    tl.store(best + row * tiles + tile, largest)
    tl.store(best_tokens + row * tiles + tile, tile * TILE + where)


@triton.jit
def _join_kernel(best, best_tokens, tokens, N, tiles, TILES: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, TILES)
    value = tl.load(best + row * tiles + tile, mask=tile < tiles, other=float("-inf"))
    where = tl.minimum(tl.argmax(value, 0), tiles - 1)  # where nothing is a number, the last may be found
    token = tl.load(best_tokens + row * tiles + where)
    tl.store(tokens + row, tl.minimum(token, N - 1).to(tl.int64))  # likewise


def draw(
    values: torch.Tensor, keys: torch.Tensor, temperatures: torch.Tensor, floors: torch.Tensor | None
) -> torch.Tensor:
    """For each row of `values` the token with the largest sum of noise and logit by temperature, among those that are
    not below its floor. Keys, temperatures and floors are `[rows, 1]`; the first two may lie apart."""
    rows, size = values.shape
    tiles = triton.cdiv(size, _TILE)
    best = torch.empty((rows, tiles), dtype=torch.float64, device=values.device)
    best_tokens = torch.empty((rows, tiles), dtype=torch.int32, device=values.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=values.device)
    _draw_kernel[(rows, tiles)](
        values, keys, temperatures, best if floors is None else floors.contiguous(), best, best_tokens, size, tiles,
        keys.stride(0), temperatures.stride(0), HAS_FLOORS=floors is not None, TILE=_TILE, num_warps=4,
    )  # fmt: skip
    _join_kernel[(rows,)](
        best, best_tokens, tokens, size, tiles, TILES=max(2, triton.next_power_of_2(tiles)), num_warps=1
    )
    return tokens


@triton.jit(do_not_specialize_on_alignment=["values", "temperatures", "largest", "floors"])
def _mass_kernel(  # type: ignore[no-untyped-def]
    values, temperatures, largest, floors, sums, N, tiles, stride_temperatures, TILE: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    n = tile * TILE + tl.arange(0, TILE)
    logits = tl.load(values + row * N + n, mask=n < N, other=float("-inf"))
    scaled = logits.to(tl.float64) / tl.load(temperatures + row * stride_temperatures)
    is_kept = (n < N) & (scaled >= tl.load(floors + row))
    weights = tl.exp(scaled - tl.load(largest + row))
    tl.store(sums + row * tiles + tile, tl.sum(tl.where(is_kept, weights, 0.0), 0))


def mass(values: torch.Tensor, temperatures: torch.Tensor, largest: torch.Tensor, floors: torch.Tensor) -> torch.Tensor:
    """For each row the sum of exp(logit by temperature - largest) of those that are not below the floor.

    That, temperatures, largest and floors are `[rows, 1]`; temperatures may lie apart."""
    rows, size = values.shape
    tiles = triton.cdiv(size, _TILE)
    sums = torch.empty((rows, tiles), dtype=torch.float64, device=values.device)
    _mass_kernel[(rows, tiles)](
        values, temperatures, largest.contiguous(), floors.contiguous(), sums, size, tiles, temperatures.stride(0),
        TILE=_TILE, num_warps=4,
    )  # fmt: skip
    return sums.sum(-1, keepdim=True)


@triton.jit
def _rank(logits):  # type: ignore[no-untyped-def]
    """A number without a sign, of which the larger one is that of the larger logit."""
    bits = logits.to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 != 0, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)


@triton.jit(do_not_specialize=["unit"], do_not_specialize_on_alignment=["values", "temperatures", "largest"])
def _masses_kernel(  # type: ignore[no-untyped-def]
    values, temperatures, largest, ranks, sums, N, tiles, stride_temperatures, unit, TILE: tl.constexpr
):  # fmt: skip
    """What `_mass_kernel` sums up, above each of sixteen limits: the row's rank, and so many units more."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    n = tile * TILE + tl.arange(0, TILE)
    logits = tl.load(values + row * N + n, mask=n < N, other=float("-inf"))
    scaled = logits.to(tl.float64) / tl.load(temperatures + row * stride_temperatures)
    weights = tl.where(n < N, tl.exp(scaled - tl.load(largest + row)), 0.0)
    rank = _rank(logits).to(tl.int64)
    first = tl.load(ranks + row)
    for step in tl.static_range(16):
        limit = first + step * unit.to(tl.int64)
        tl.store(sums + (row * tiles + tile) * 16 + step, tl.sum(tl.where(rank >= limit, weights, 0.0), 0))


@triton.jit(do_not_specialize=["unit"], do_not_specialize_on_alignment=["shares", "temperatures", "wanted", "floors"])
def _narrow_kernel(  # type: ignore[no-untyped-def]
    sums, shares, wanted, ranks, temperatures, floors, tiles, stride_shares, stride_temperatures, unit,
    IS_FIRST: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Takes the last of the sixteen limits above which there is enough; of the first ones, it says how much that is."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, TILES)[:, None]
    step = tl.arange(0, 16)[None, :]
    parts = tl.load(sums + (row * tiles + tile) * 16 + step, mask=tile < tiles, other=0.0)
    masses = tl.sum(parts, 0)
    if IS_FIRST:
        enough = tl.max(masses, 0) * tl.load(shares + row * stride_shares)
        tl.store(wanted + row, enough)
    else:
        enough = tl.load(wanted + row)
    found = tl.maximum(tl.sum((masses >= enough).to(tl.int32), 0) - 1, 0)
    rank = tl.load(ranks + row) + found * unit.to(tl.int64)
    tl.store(ranks + row, rank)
    bits = rank.to(tl.uint32)
    bits = tl.where(bits >> 31 != 0, bits ^ 0x80000000, bits ^ 0xFFFFFFFF)
    logit = bits.to(tl.float32, bitcast=True).to(tl.float64)
    tl.store(floors + row, logit / tl.load(temperatures + row * stride_temperatures))


def top_p_floor(
    values: torch.Tensor, temperatures: torch.Tensor, largest: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """For each row the scaled logit of the last token, by falling logits, with which the tokens have that share of the
    probability; all are `[rows, 1]`. Instead of sorting, the logit's bits are found, four at a time."""
    rows, size = values.shape
    tiles = triton.cdiv(size, _TILE)
    sums = torch.empty((rows, tiles, 16), dtype=torch.float64, device=values.device)
    ranks = torch.zeros(rows, dtype=torch.int64, device=values.device)
    wanted = torch.empty(rows, dtype=torch.float64, device=values.device)
    floors = torch.empty((rows, 1), dtype=torch.float64, device=values.device)
    largest = largest.contiguous()
    for shift in range(28, -1, -4):
        _masses_kernel[(rows, tiles)](
            values, temperatures, largest, ranks, sums, size, tiles, temperatures.stride(0), 1 << shift, TILE=_TILE,
            num_warps=4,
        )  # fmt: skip
        _narrow_kernel[(rows,)](
            sums, shares, wanted, ranks, temperatures, floors, tiles, shares.stride(0), temperatures.stride(0),
            1 << shift, IS_FIRST=shift == 28, TILES=max(2, triton.next_power_of_2(tiles)), num_warps=4,
        )  # fmt: skip
    return floors
