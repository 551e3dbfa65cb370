"""Matrices of four bits as matrix units take them, and products of up to 64 rows with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from trireme.llm.kernels import cuda_source
from trireme.llm.kernels.activations import NONE
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix

MAX_ROWS = 64
NORMED_ROWS = 8
"""Rows whose norm is part of the same launch."""
_SOURCE = Path(__file__).with_name("int4_products.cu")
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Int4Fragments:
    """A matrix `[rows, columns]`; rows come in blocks of 16, columns in spans of 64."""

    shape: tuple[int, int]
    words: torch.Tensor
    """int32 `[row blocks, spans, 32 lanes, 4]`."""
    scales: torch.Tensor
    """float16 `[groups, rows]`."""
    zeros: torch.Tensor | None
    """uint8 `[groups, rows]`; without them zero is 8."""

    @property
    def nbytes(self) -> int:
        """Of all that a product reads."""
        return self.words.nbytes + self.scales.nbytes + (self.zeros.nbytes if self.zeros is not None else 0)

    @property
    def group_spans(self) -> int:
        """Spans of columns that share a scale."""
        return self.shape[1] // 64 // self.scales.shape[0]

    def numel(self) -> int:
        """How many numbers it stands for."""
        return self.shape[0] * self.shape[1]


def can_be_fragments(matrix: PackedMatrix, is_gated: bool) -> bool:
    """Whether the matrix has the sizes for it; a gated one consists of two halves."""
    rows, columns = matrix.shape
    return matrix.bits == "int4" and rows % (32 if is_gated else 16) == 0 and columns % 64 == 0


def fragments_of(matrix: PackedMatrix) -> Int4Fragments:
    """The same matrix in that layout, some rows at a time."""
    rows, columns = matrix.shape
    spans = columns // 64
    words = torch.empty((rows // 16, spans, 32, 4), dtype=torch.int32, device=matrix.codes.device)
    places = torch.arange(8, device=words.device, dtype=torch.int32) * 4
    for first in range(0, rows, _ROWS_AT_ONCE):
        part = matrix.codes[first : first + _ROWS_AT_ONCE]
        codes = (part.view(-1, spans, 1, 8) >> places[:, None]) & 15  # [rows, span, place in the word, word]
        # rows: block, half (8 rows), g; columns of a span: t, step, which pair, which of the pair
        parted = codes.reshape(-1, 2, 8, spans, 4, 4, 2, 2)
        nibbles = parted.permute(0, 3, 2, 4, 5, 7, 6, 1).reshape(-1, spans, 32, 4, 8)
        words[first // 16 : (first + len(part)) // 16] = (nibbles << places).sum(-1, dtype=torch.int64).to(torch.int32)
    zeros = matrix.zeros.t().contiguous() if matrix.zeros is not None else None
    return Int4Fragments((rows, columns), words, matrix.scales.t().to(torch.float16).contiguous(), zeros)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a product is cut into programs."""

    blocks: int
    """Of 16 rows each; of a gated product at least two."""
    warps: int
    """Parts of the long side."""
    ahead: int
    """Turns whose part of the matrix is on its way."""
    resident: int = 1
    """Programs that are to be on a processor at once."""


def cut_for(tiles: int, n: int, is_gated: bool) -> Cut:
    """The cut for so many tiles of eight rows of x, as measured on an H200 by `benchmarks/llm_kernels.py`."""
    if tiles == 8:
        return Cut(2, 4, 2, 2)
    if tiles == 4:
        return Cut(2, 8, 4)
    if is_gated:
        return Cut(4, 4, 2, 1 if tiles == 1 else 3)
    return Cut(2, 16, 4) if n <= 8192 or tiles == 2 else Cut(2, 8, 2, 3)


def product(
    x: torch.Tensor,
    w: Int4Fragments,
    *,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    norm_eps: float | None = None,
    activation: int = NONE,
    activate_to: int | None = None,
    is_gated: bool = False,
    cut: Cut | None = None,
) -> torch.Tensor:
    """As `matmul.few_rows`; the norm is for `NORMED_ROWS`.

    Rows of x begin at multiples of 16 bytes.
    """
    m, k = x.shape
    n = w.shape[0] // (2 if is_gated else 1)
    tiles = 1 if m <= 8 else 2 if m <= 16 else 4 if m <= 32 else 8
    cut = cut or cut_for(tiles, n, is_gated)
    macros = cuda_source.macros_of(
        {
            "PRODUCT": 1,
            "GROUP": w.group_spans,
            "RESIDENT": cut.resident,
            "TILES": tiles,
            "WARPS": cut.warps,
            "BLOCKS": cut.blocks,
            "AHEAD": cut.ahead,
            "IS_HALF": x.dtype == torch.float16,
            "HAS_ZEROS": w.zeros is not None,
            "HAS_BIAS": bias is not None,
            "HAS_RESIDUAL": residual is not None,
            "IS_GATED": is_gated,
            "NORMS": norm_eps is not None,
            "ACTIVATION": activation,
        }
    )
    kernel = cuda_source.compiled(_SOURCE, "int4_product", macros, x.device)
    grid = (-(-n // (cut.blocks * (8 if is_gated else 16))), 1)
    stride_residual = residual.stride(0) if residual is not None else 0
    kernel.launch(
        grid,
        cut.warps * 32,
        (
            w.words, w.scales, w.zeros, x, bias, residual, out, norm_eps or 0.0, m, n, k, x.stride(0),
            stride_residual, out.stride(0), n if activate_to is None else activate_to,
        ),
    )  # fmt: skip
    return out


def unpack(w: Int4Fragments, out: torch.Tensor) -> torch.Tensor:
    """Writes the numbers of the matrix to the beginning of `out`; they come back in the matrix's shape."""
    rows, columns = w.shape
    target = out[: rows * columns].view(rows, columns)
    macros = cuda_source.macros_of(
        {"GROUP": w.group_spans, "IS_HALF": out.dtype == torch.float16, "HAS_ZEROS": w.zeros is not None}
    )
    kernel = cuda_source.compiled(_SOURCE, "int4_unpack", macros, out.device)
    kernel.launch((rows // 16, -(-columns // 512)), 256, (w.words, w.scales, w.zeros, target, rows, columns))
    return target
