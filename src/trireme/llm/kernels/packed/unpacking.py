"""From few bits to sixteen and back, for products of many rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trireme.llm.kernels.packed.packed_matrix import PackedMatrix

_LARGEST_FP8 = 448.0


@triton.jit
def _unpack_int4_kernel(  # type: ignore[no-untyped-def]
    words, scales, zeros, out, WIDTH, GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    w = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = w < WIDTH
    packed = tl.load(words + row * WIDTH + w, mask=inside, other=0)
    place = row * (WIDTH * 8 // GROUP) + w * 8 // GROUP
    scale = tl.load(scales + place, mask=inside, other=0.0).to(tl.float32)
    zero = 8.0
    if HAS_ZEROS:
        zero = tl.load(zeros + place, mask=inside, other=0).to(tl.float32)
    target = out + row * WIDTH * 8 + w // 8 * 64 + w % 8
    for nibble in tl.static_range(8):
        number = ((packed >> (4 * nibble)) & 15).to(tl.float32)
        tl.store(target + nibble * 8, ((number - zero) * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _unpack_bytes_kernel(codes, scales, out, N, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    number = tl.load(codes + row * N + n, mask=n < N, other=0.0).to(tl.float32)
    scale = tl.load(scales + row).to(tl.float32)
    tl.store(out + row * N + n, (number * scale).to(out.dtype.element_ty), mask=n < N)


def unpack(matrix: PackedMatrix, out: torch.Tensor) -> torch.Tensor:
    """Writes the numbers of the matrix to the beginning of `out`; they come back in the matrix's shape."""
    rows, columns = matrix.shape
    target = out[: rows * columns].view(rows, columns)
    if matrix.bits == "int4":
        width = columns // 8
        _unpack_int4_kernel[(rows, triton.cdiv(width, 512))](
            matrix.codes, matrix.scales, matrix.zeros, target, width, GROUP=matrix.group_size,
            HAS_ZEROS=matrix.zeros is not None, TILE=512, num_warps=4,
        )  # fmt: skip
    else:
        _unpack_bytes_kernel[(rows, triton.cdiv(columns, 2048))](
            matrix.codes, matrix.scales, target, columns, TILE=2048, num_warps=4
        )
    return target


@triton.jit
def _to_fp8_kernel(x, out, scales, N, stride_x, LARGEST: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, TILE)
    value = tl.load(x + row * stride_x + n, mask=n < N, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), 0), 1e-12) / LARGEST
    tl.store(scales + row, scale)
    tl.store(out + row * N + n, (value / scale).to(out.dtype.element_ty), mask=n < N)


def to_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row as numbers of eight bits, and the scale of each row, `[rows, 1]`."""
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    tile = triton.next_power_of_2(n)
    _to_fp8_kernel[(rows,)](
        x, out, scales, n, x.stride(0), LARGEST=_LARGEST_FP8, TILE=tile, num_warps=8 if tile >= 4096 else 4
    )
    return out, scales
