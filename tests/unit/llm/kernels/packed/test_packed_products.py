"""Products with matrices of few bits against plain PyTorch: on a GPU, or in the Triton language's interpreter."""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from trireme.llm.kernels import activations, matmul  # noqa: E402
from trireme.llm.kernels.packed import int4_fragments, packed_matrix, unpacking  # noqa: E402
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix  # noqa: E402
from trireme.llm.kernels.tilings import packed_tiling_for  # noqa: E402
from trireme.llm.models.quantized import QuantizedWeight, pack, to_float32  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32
TOLERANCE = 2e-2 if torch.cuda.is_available() else 2e-5
KINDS = ["int4", "int4 with zeros", "int8", "fp8"]


@functools.cache
def weight_of(kind: str, rows: int, columns: int, group: int, seed: int = 0) -> QuantizedWeight:
    generator = np.random.default_rng(seed)
    if kind.startswith("int4"):
        shape = (rows, columns // group)
        codes = pack(generator.integers(0, 16, (rows, columns), dtype=np.uint8))
        zeros = generator.integers(0, 17, shape, dtype=np.uint8) if kind == "int4 with zeros" else None
        return QuantizedWeight("int4", codes, generator.uniform(0.01, 0.02, shape).astype(np.float32), zeros)
    scales = generator.uniform(0.001, 0.002, (rows, 1)).astype(np.float32)
    if kind == "int8":
        return QuantizedWeight("int8", generator.integers(-128, 128, (rows, columns)).astype(np.int8), scales)
    codes = generator.integers(0, 256, (rows, columns)).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0  # not a number
    return QuantizedWeight("fp8", codes, scales)


def on_device(weight: QuantizedWeight) -> PackedMatrix:
    codes = torch.from_numpy(weight.codes)
    if weight.bits == "fp8":
        codes = codes.view(torch.float8_e4m3fn)
    zeros = torch.from_numpy(weight.zeros) if weight.zeros is not None else None
    return PackedMatrix(weight.bits, codes, torch.from_numpy(weight.scales), zeros).to(DEVICE)


def numbers_of(weight: QuantizedWeight) -> torch.Tensor:
    return torch.from_numpy(to_float32(weight)).to(DEVICE)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float32).to(DTYPE).to(DEVICE)


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found.float() - expected.float()).norm() / expected.float().norm() < TOLERANCE)


def worst_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of any element, as a share of its size and of the usual size."""
    return float(((found.double() - expected).abs() / (expected.abs() + expected.std())).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [64, 192])
@pytest.mark.parametrize(
    ("rows", "tiling"),
    [
        (1, matmul.Tiling(1, 2, 128, 1, 2)),
        (1, matmul.Tiling(1, 4, 1024, 1, 2)),
        (5, matmul.Tiling(16, 16, 128, 2, 2)),
        (20, matmul.Tiling(32, 32, 128, 4, 2, splits=2)),
        (70, matmul.Tiling(64, 32, 128, 4, 2)),
    ],
)
@pytest.mark.parametrize("form", ["plain", "norm", "gated"])
def test_products(kind: str, group: int, rows: int, tiling: matmul.Tiling, form: str) -> None:
    if form == "norm" and rows > 1:
        pytest.skip("the norm is a launch of its own")
    torch.manual_seed(0)
    n, k = 48, 576
    weight = weight_of(kind, 2 * n if form == "gated" else n, k, group)
    x, out = random(rows, k), torch.full((rows, n), float("nan"), dtype=DTYPE, device=DEVICE)
    wide, numbers, scratch = x.float(), numbers_of(weight), matmul.SplitScratch(DEVICE)
    if form == "norm":
        bias, residual = random(n), random(1, n)
        matmul.few_rows(x, on_device(weight), tiling, out=out, bias=bias, residual=residual, norm_eps=1e-5)
        normal = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)
        expected = normal @ numbers.T + bias.float() + residual.float()
    elif form == "gated":
        matmul.few_rows(x, on_device(weight), tiling, out=out, activation=activations.SILU, is_gated=True)
        gate, up = (wide @ numbers.T).chunk(2, -1)
        expected = torch.nn.functional.silu(gate) * up
    else:
        for _ in range(2):  # the second time with the counters that the first has left
            matmul.few_rows(x, on_device(weight), tiling, out=out, scratch=scratch)
        expected = wide @ numbers.T
    assert is_close(out, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_unpacked_is_what_numpy_reads(kind: str) -> None:
    weight = weight_of(kind, 20, 576, 64)
    room = torch.zeros(20 * 576 + 5, dtype=torch.float32, device=DEVICE)
    assert torch.allclose(unpacking.unpack(on_device(weight), room), numbers_of(weight), rtol=1e-6)


@pytest.mark.parametrize("kind", ["int4", "int4 with zeros"])
def test_matrices_lie_beside_and_above_each_other(kind: str) -> None:
    first, second = weight_of(kind, 20, 128, 64, 1), weight_of(kind, 20, 192, 64, 2)
    joined = packed_matrix.beside(on_device(first), on_device(second))
    assert joined is not None
    room = torch.zeros(20 * 320, dtype=torch.float32, device=DEVICE)
    assert torch.allclose(unpacking.unpack(joined, room), torch.cat([numbers_of(first), numbers_of(second)], 1))
    third = weight_of(kind, 12, 128, 64, 3)
    joined = packed_matrix.above(on_device(first), on_device(third))
    assert joined is not None
    assert torch.allclose(unpacking.unpack(joined, room), torch.cat([numbers_of(first), numbers_of(third)], 0))


def test_rows_with_one_scale_do_not_lie_beside_each_other() -> None:
    assert packed_matrix.beside(on_device(weight_of("fp8", 4, 64, 64)), on_device(weight_of("fp8", 4, 64, 64))) is None
    assert packed_matrix.above(on_device(weight_of("int8", 4, 64, 64)), on_device(weight_of("fp8", 4, 64, 64))) is None


def test_rows_in_eight_bits() -> None:
    torch.manual_seed(0)
    x = random(5, 100)
    codes, scales = unpacking.to_fp8(x)
    assert codes.dtype == torch.float8_e4m3fn
    assert bool((codes.float().abs().amax(1) == 448).all())
    error = float((codes.float() * scales - x.float()).norm() / x.float().norm())
    assert error < (0.04 if DEVICE.type == "cuda" else 0.07)  # the interpreter cuts off where a GPU rounds


@pytest.mark.skipif(DEVICE.type != "cuda", reason="what overlaps on a GPU does not in the interpreter")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 31, 100])
@pytest.mark.parametrize(("n", "k", "is_gated"), [(12288, 4096, False), (11008, 4096, True), (4544, 22720, False)])
def test_real_sizes(kind: str, rows: int, n: int, k: int, is_gated: bool) -> None:
    torch.manual_seed(2)
    weight = weight_of(kind, 2 * n if is_gated else n, k, 64 if k % 128 else 128)
    x, matrix = random(rows, k), on_device(weight)
    tiling = packed_tiling_for(rows, n, k, is_gated, weight.bits)
    assert tiling is not None
    expected = x.double() @ numbers_of(weight).double().T
    if is_gated:
        gate, up = expected.chunk(2, -1)
        expected = torch.nn.functional.silu(gate) * up
    for _ in range(4):
        out = torch.zeros((rows, n), dtype=DTYPE, device=DEVICE)
        matmul.few_rows(
            x, matrix, tiling, out=out, activation=activations.SILU if is_gated else activations.NONE,
            is_gated=is_gated, scratch=matmul.SplitScratch(DEVICE),
        )  # fmt: skip
        assert worst_error(out, expected) < 0.05


@pytest.mark.skipif(DEVICE.type != "cuda", reason="there is no GPU")
@pytest.mark.parametrize("kind", ["int4", "int4 with zeros"])
@pytest.mark.parametrize(
    ("dtype", "rows"),
    [(torch.bfloat16, rows) for rows in (1, 8, 13, 31, 33, 64)] + [(torch.float16, 3), (torch.float16, 40)],
)
@pytest.mark.parametrize(
    ("n", "k", "form"),
    [(4096, 4096, "residual"), (11008, 4096, "gated"), (4544, 22720, "norm"), (48, 576, "activated")],
)
def test_fragments(kind: str, dtype: torch.dtype, rows: int, n: int, k: int, form: str) -> None:
    torch.manual_seed(3)
    weight = weight_of(kind, 2 * n if form == "gated" else n, k, 64 if k % 128 else 128)
    weight = dataclasses.replace(weight, scales=weight.scales.astype(np.float16))
    numbers, wide = numbers_of(weight).double(), torch.randn(rows, k + 16, device=DEVICE).to(dtype)
    x, matrix = wide[:, 16:], int4_fragments.fragments_of(on_device(weight))
    bias, residual = (torch.randn(size, device=DEVICE).to(dtype) for size in ((n,), (rows, n)))
    out = torch.full((rows, n), float("nan"), dtype=dtype, device=DEVICE)
    expected = x.double() @ numbers.T
    if form == "residual":
        int4_fragments.product(x, matrix, out=out, residual=residual, bias=bias)
        expected = expected + residual.double() + bias.double()
    elif form == "gated":
        int4_fragments.product(x, matrix, out=out, activation=activations.SILU, is_gated=True)
        gate, up = expected.chunk(2, -1)
        expected = torch.nn.functional.silu(gate) * up
    elif form == "norm":
        norm = 1e-5 if rows <= int4_fragments.NORMED_ROWS else None
        int4_fragments.product(x, matrix, out=out, norm_eps=norm)
        if norm:
            expected = expected * torch.rsqrt((x.double() ** 2).mean(-1, keepdim=True) + 1e-5)
    else:
        int4_fragments.product(x, matrix, out=out, activation=activations.GELU, activate_to=20)
        expected[:, :20] = torch.nn.functional.gelu(expected[:, :20])
    assert worst_error(out, expected) < 0.05


@pytest.mark.skipif(DEVICE.type != "cuda", reason="there is no GPU")
@pytest.mark.parametrize("kind", ["int4", "int4 with zeros"])
def test_fragments_are_the_same_numbers(kind: str) -> None:
    weight = weight_of(kind, 48, 576, 64)
    weight = dataclasses.replace(weight, scales=weight.scales.astype(np.float16))
    room = torch.zeros(48 * 576 + 5, dtype=torch.float16, device=DEVICE)
    found = int4_fragments.unpack(int4_fragments.fragments_of(on_device(weight)), room)
    assert torch.equal(found, numbers_of(weight).to(torch.float16))
