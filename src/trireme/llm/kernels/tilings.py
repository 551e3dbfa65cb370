"""How products of few rows are cut, by their sizes, as measured on an H200 by `benchmarks/llm_kernels.py`."""

from __future__ import annotations

from trireme.llm.kernels.matmul import Tiling
from trireme.llm.models.quantized import Bits

_PROCESSORS = 132


def tiling_for(m: int, n: int, k: int, is_gated: bool) -> Tiling | None:
    """The cut for `[m, k] @ [n, k].T`; None: leave it to the vendor's library. `n` counts the result's columns."""
    if m == 1:
        return _one_row(n, k, is_gated)
    if m <= 16:
        return _up_to_32(16, n, k, is_gated)
    if m <= 32:
        return _up_to_32(32, n, k, is_gated)
    if m <= 64:
        return _up_to_64(n, k, is_gated)
    return None


def invariant_tiling_for(n: int, k: int, is_gated: bool) -> Tiling:
    """One cut for any number of rows: a row is added up in the same order whatever stands beside it."""
    block_k = 128 if k % 128 == 0 else 64
    if is_gated or n > 16384:
        return Tiling(64, 128 if n > 24000 else 64, 64, 4, 4)
    splits = min(4, max(1, round(_PROCESSORS / -(-n // 64))))
    return Tiling(64, 64, block_k, 4, 4, splits)


def packed_tiling_for(m: int, n: int, k: int, is_gated: bool, bits: Bits) -> Tiling | None:
    """The same for matrices of few bits; None: unpack the matrix."""
    if m == 1:
        return _one_packed_row(is_gated, bits)
    if m > 128:
        return None
    block_m = 16 if m <= 16 else 32 if m <= 32 else 64
    if is_gated:
        return Tiling(block_m, 64, 128, 4, 3)
    splits = min(4, max(1, round(_PROCESSORS / -(-n // 64))))
    return Tiling(block_m, 64, 128, 4, 4, splits)


def _one_packed_row(is_gated: bool, bits: Bits) -> Tiling:
    if bits != "int4":
        return Tiling(1, 1, 1024, 4, 2) if is_gated else Tiling(1, 8, 512, 8, 2)
    return Tiling(1, 2 if is_gated else 4, 4096, 4, 2)


def _one_row(n: int, k: int, is_gated: bool) -> Tiling:
    if is_gated:
        return Tiling(1, 2, 1024, 2, 2)
    if n <= 2048 and k <= 2048:
        return Tiling(1, 2, 1024, 2, 2)
    if n <= 4096:
        return Tiling(1, 4, 2048, 4, 2) if k <= 4096 else Tiling(1, 4, 1024, 2, 2)
    if k > 16384:
        return Tiling(1, 2, 1024, 4, 2)
    return Tiling(1, 4, 1024, 2, 2) if n > 24000 else Tiling(1, 4, 2048, 4, 2)


def _up_to_32(block_m: int, n: int, k: int, is_gated: bool) -> Tiling:
    if is_gated:
        return Tiling(block_m, 64, 64, 4, 4)
    is_even = k % 128 == 0
    if n > 16384:
        return Tiling(block_m, 64, 128, 4, 4) if is_even else Tiling(block_m, 128, 64, 4, 4 if k <= 16384 else 6)
    if n > 8192:
        return Tiling(block_m, 128 if block_m == 16 else 64, 64, 4, 6)
    tiles = -(-n // 64)
    splits = min(4, max(1, round(_PROCESSORS / tiles)))
    if not is_even and k > 4 * n:
        if block_m == 32:
            return Tiling(32, 128, 64, 4, 6, max(1, _PROCESSORS // -(-n // 128)))
        return Tiling(16, 64, 64, 4, 6, splits + 1)
    return Tiling(block_m, 64, 128 if is_even else 64, 4, 6 if splits < 3 else 4, splits)


def _up_to_64(n: int, k: int, is_gated: bool) -> Tiling | None:
    if is_gated or n > 16384:
        return Tiling(64, 128 if n > 8960 and (is_gated or n > 24000) else 64, 64, 4, 4)
    if 4000 < n <= 8192 and k > n and k % 128 == 0:
        return Tiling(64, 64, 128, 4, 6, 2)
    return None
