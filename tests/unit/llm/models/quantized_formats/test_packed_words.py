"""Packed words of compressed-tensors: releases differ in how numbers lie in them, and config.json tells their bits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from trireme.llm.models.checkpoint import CheckpointError, Weight, to_float32
from trireme.llm.models.quantized_formats.compressed_tensors import CompressedTensorsFormat
from trireme.llm.models.quantized_formats.reader import QuantizedCheckpoint

ROWS, COLUMNS = 64, 160
Numbers = npt.NDArray[Any]


def in_words(numbers: Numbers, bits: int, *, is_padded: bool) -> Numbers:
    """Along the last axis, by the letter: number i begins at bit i * bits, or at the next one with room in its word."""
    in_word = 32 // bits
    starts = [place // in_word * 32 + place % in_word * bits if is_padded else place * bits
              for place in range(numbers.shape[-1])]  # fmt: skip
    rows = [sum(int(number) << start for number, start in zip(row, starts, strict=True)) for row in numbers]
    size = -(-(starts[-1] + bits) // 32)
    return np.frombuffer(b"".join(row.to_bytes(4 * size, "little") for row in rows), np.int32).reshape(-1, size)


class Stored:
    """A checkpoint in memory."""

    def __init__(self, **parts: Weight) -> None:
        self._parts = {f"m.{name}": part for name, part in parts.items()}
        self.names = frozenset(self._parts)

    def read(self, name: str) -> Weight:
        return self._parts[name]


def packed(bits: int, *, is_padded: bool, has_zeros: bool = False, columns: int = COLUMNS) -> tuple[Stored, Numbers]:
    """A module of packed parts, and the numbers that it stands for."""
    drawn = np.random.default_rng(bits)
    codes = drawn.integers(0, 2**bits, (ROWS, columns))
    zeros = drawn.integers(0, 2**bits, (ROWS, 1)) if has_zeros else np.full((ROWS, 1), 2 ** (bits - 1))
    scales = drawn.integers(1, 9, (ROWS, 1)).astype(np.float32) / 8
    parts = {
        "weight_packed": Weight(in_words(codes, bits, is_padded=is_padded), "I32"),
        "weight_shape": Weight(np.array([ROWS, columns]), "I64"),
        "weight_scale": Weight(scales, "F32"),
    }
    if has_zeros:
        parts["weight_zero_point"] = Weight(in_words(zeros.T, bits, is_padded=is_padded).T, "I32")
    return Stored(**parts), (codes - zeros) * scales


def settings(*bits: Any) -> dict[str, Any]:
    groups = {f"group_{place}": {"weights": {"num_bits": one, "type": "int"}} for place, one in enumerate(bits)}
    return {"format": "pack-quantized", "config_groups": groups}


def numbers_of(stored: Stored, *bits: Any) -> Numbers:
    return to_float32(CompressedTensorsFormat(settings(*bits)).read("m", stored.read, stored.names))


@pytest.mark.parametrize("has_zeros", [False, True], ids=["symmetric", "zeros"])
@pytest.mark.parametrize("is_padded", [False, True], ids=["dense", "padded"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_numbers_of_all_widths_are_read_in_the_packing_of_each_release(
    bits: int, is_padded: bool, has_zeros: bool
) -> None:
    stored, wanted = packed(bits, is_padded=is_padded, has_zeros=has_zeros)
    assert np.array_equal(numbers_of(stored, bits), wanted)


def test_the_words_tell_which_of_several_groups_a_module_belongs_to() -> None:
    for bits in (3, 4, 6):
        for is_padded in (False, True):
            stored, wanted = packed(bits, is_padded=is_padded)
            assert np.array_equal(numbers_of(stored, 3, 4, 6), wanted)


def test_groups_of_floats_have_no_packed_words() -> None:
    stored, wanted = packed(7, is_padded=True)
    groups = {"floats": {"weights": {"num_bits": 8, "type": "float"}}, "inputs": {"weights": None}}
    config = settings(7)
    config["config_groups"].update(groups)
    assert np.array_equal(to_float32(CompressedTensorsFormat(config).read("m", stored.read, stored.names)), wanted)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ((3,), "has 160 columns in 20 words; with num_bits of config.json they take 15 (3 bits), 16 (3 bits, padded)"),
        ((8, 2), "has 160 columns in 20 words; with num_bits of config.json they take 10 (2 bits), 40 (8 bits)"),
        ((), "is packed, but no group in config.json says with 1 to 8 bits (num_bits)"),
        ((16, "4", None), "is packed, but no group in config.json says with 1 to 8 bits (num_bits)"),
    ],
)
def test_words_that_do_not_fit_the_bits_are_refused(said: tuple[Any, ...], message: str) -> None:
    stored, _ = packed(4, is_padded=False)
    with pytest.raises(CheckpointError, match=f"^'m' {re.escape(message)}$"):
        numbers_of(stored, *said)


@pytest.mark.parametrize(
    ("bits", "said", "columns", "ways"),
    [(7, (7, 8), COLUMNS, "7 bits, padded or 8 bits"), (3, (3,), 20, "3 bits or 3 bits, padded")],
)
def test_words_that_may_be_two_things_are_refused(bits: int, said: tuple[int, ...], columns: int, ways: str) -> None:
    stored, _ = packed(bits, is_padded=True, columns=columns)
    with pytest.raises(CheckpointError, match=f"words, which may be {ways}: nothing tells"):
        numbers_of(stored, *said)


def test_zeros_in_another_packing_than_the_numbers_are_refused() -> None:
    stored, _ = packed(6, is_padded=True, has_zeros=True)
    other, _ = packed(6, is_padded=False, has_zeros=True)
    mixed = Stored(**{name: (other if name == "weight_zero_point" else stored).read(f"m.{name}")
                      for name in ("weight_packed", "weight_shape", "weight_scale", "weight_zero_point")})  # fmt: skip
    config = {"quantization_config": {"quant_method": "compressed-tensors", **settings(6)}}
    with pytest.raises(CheckpointError, match="'m' do not belong together: 64 numbers of 6 bits are in 12 words"):
        QuantizedCheckpoint(mixed, config).read("m.weight")  # type: ignore[arg-type]
