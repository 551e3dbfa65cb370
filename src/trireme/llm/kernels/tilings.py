"""How products of few rows are cut, by their sizes, as measured on an H200 by `benchmarks/llm_kernels.py`."""

from __future__ import annotations

from trireme.llm.kernels.matmul import Tiling

MOST_ROWS = 128
"""With more rows than this the vendor's library is faster."""
MOST_NORMED_ROWS = 16
"""Up to so many rows the norm is part of the product."""


def tiling_for(m: int, n: int, k: int, is_gated: bool) -> Tiling | None:
    """The cut for `[m, k] @ [n, k].T`; None: leave it to the vendor's library. `n` counts the result's columns."""
    if m == 1:
        return _one_row(n, k, is_gated)
    if m > MOST_ROWS:
        return None
    block_m = 16 if m <= 16 else 32 if m <= 32 else 64 if m <= 64 else 128
    block_n = 16 if n * (2 if is_gated else 1) <= 6144 else 32
    block_k = 128 if k % 128 == 0 else 64
    return Tiling(block_m, block_n, block_k, 4, 4)


def _one_row(n: int, k: int, is_gated: bool) -> Tiling:
    if is_gated:
        return Tiling(1, 1, 2048, 8, 2)
    if n <= 2048:
        return Tiling(1, 2, 1024, 2, 3)
    if k >= 8192:
        return Tiling(1, 4, 1024, 2, 3)
    return Tiling(1, 2, 2048, 8, 3)
