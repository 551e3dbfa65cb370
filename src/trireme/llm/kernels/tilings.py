"""How products of few rows are cut, by their sizes, as measured on an H200 by `benchmarks/llm_kernels.py`."""

from __future__ import annotations

from trireme.llm.kernels.matmul import Tiling

MOST_NORMED_ROWS = 16
"""Up to so many rows the norm is part of the product."""


def tiling_for(m: int, n: int, k: int, is_gated: bool) -> Tiling | None:
    """The cut for `[m, k] @ [n, k].T`; None: leave it to the vendor's library. `n` counts the result's columns."""
    if m == 1:
        return _one_row(n, k, is_gated)
    if m > 64 or k > 2 * n or (n < 3000 and k > 4096):
        return None  # the library splits the long side among processors
    wide = 128 if k % 128 == 0 and n <= 16384 and not is_gated else 64
    if m <= 32:
        block_m = 16 if m <= 16 else 32
        return Tiling(block_m, 64, wide, 4, 6 if n <= 4096 else 4)
    if is_gated or n > 16384:
        return Tiling(64, 64 if is_gated else 128, 64, 4, 4)
    return None


def _one_row(n: int, k: int, is_gated: bool) -> Tiling:
    if is_gated:
        return Tiling(1, 1, 1024, 2, 2)
    if n <= 2048:
        return Tiling(1, 2, 2048, 2, 2)
    if k >= 8192:
        return Tiling(1, 2, 2048, 2, 2)
    return Tiling(1, 2, 1024, 4, 2)
