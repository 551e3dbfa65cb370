"""Matrices of few bits are as near to the numbers as their form allows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from trireme.llm.models.quantized import Bits, QuantizedWeight, pack, to_float32, unpack
from trireme.llm.quantization.plan import bits_of
from trireme.llm.quantization.rounding import NotFiniteError, fp8_codes, group_size, round_matrix


def matrix(rows: int = 40, columns: int = 256, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.05, (rows, columns)).astype(np.float32)


def relative_error(weight: QuantizedWeight, numbers: npt.NDArray[np.float32]) -> float:
    return float(np.sqrt(((to_float32(weight) - numbers) ** 2).mean() / (numbers**2).mean()))


@pytest.mark.parametrize(("bits", "most"), [("int4", 0.12), ("int8", 0.01), ("fp8", 0.03)])
def test_the_error_is_small(bits: Bits, most: float) -> None:
    numbers = matrix()
    assert 0 < relative_error(round_matrix(numbers, bits), numbers) < most


@pytest.mark.parametrize(("columns", "group"), [(256, 128), (192, 64), (64, 64)])
def test_four_bits_are_within_half_a_step_of_their_group(columns: int, group: int) -> None:
    numbers = matrix(columns=columns)
    found = round_matrix(numbers, "int4")
    assert (found.group_size, found.scales.dtype, found.shape) == (group, np.float16, numbers.shape)
    errors = np.abs(to_float32(found) - numbers).reshape(40, -1, group).max(-1)
    assert (errors <= found.scales.astype(np.float32) * 1.01).all()  # the zero is rounded too
    assert np.median(errors / found.scales.astype(np.float32)) < 0.55


def test_many_rows_are_rounded_in_parts_as_if_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = matrix()
    whole = round_matrix(numbers, "int4")
    monkeypatch.setattr("trireme.llm.quantization.rounding._NUMBERS_AT_ONCE", 7 * 256)
    parts = round_matrix(numbers, "int4")
    assert np.array_equal(whole.codes, parts.codes)
    assert np.array_equal(to_float32(whole), to_float32(parts))


def test_eight_bit_floats_are_those_of_pytorch() -> None:
    exponents = np.random.default_rng(1).normal(0, 4, (64, 64))
    values = (matrix(64, 64) * np.exp(exponents)).astype(np.float32)
    values[0, :4] = (0.0, -0.0, 1e9, -1e9)
    values[1, :3] = (2.0**-10, 3 * 2.0**-10, 5 * 2.0**-10)  # ties among the smallest
    wanted = torch.from_numpy(values).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(fp8_codes(values), wanted)


@pytest.mark.parametrize("bits", ["int4", "int8", "fp8"])
def test_rows_of_zeros_and_tiny_numbers_stay_finite(bits: Bits) -> None:
    numbers = matrix(4, 64)
    numbers[0] = 0
    numbers[1] *= 1e-12
    found = to_float32(round_matrix(numbers, bits))
    assert np.isfinite(found).all()
    assert not found[0].any()


@pytest.mark.parametrize("bits", ["int4", "int8", "fp8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(bits: Bits, bad: float) -> None:
    numbers = matrix(4, 64)
    numbers[2, 7] = bad
    with pytest.raises(NotFiniteError):
        round_matrix(numbers, bits)


def test_packing_is_turned_back() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (5, 192)).astype(np.uint8)
    assert np.array_equal(unpack(pack(codes)), codes)


def test_forms_follow_the_sizes() -> None:
    assert [group_size(columns) for columns in (4096, 4544, 80)] == [128, 64, None]
    assert bits_of("qkv", (96, 128), "int4") == "int4"
    assert bits_of("qkv", (96, 80), "awq") == "int8"  # four bits do not fill whole words
    assert bits_of("head", (4096, 128), "int4") == "fp8"
    assert bits_of("head", (50257, 128), "int4") == "int8"  # rows that matrix units of eight-bit floats do not take
    assert bits_of("embed", (4096, 128), "int8") is None
    assert bits_of("down", (128, 256), "none") is None
