"""The names that other programs have for datatypes, and what is made of them."""

from __future__ import annotations

import pytest

from trireme.core.datatype import WIRE_NAMES, meant_datatype


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("float32", "FP32"),
        ("TYPE_FP16", "FP16"),
        ("fp64", "FP64"),
        ("TYPE_STRING", "BYTES"),
        ("str", "BYTES"),
        ("object", "BYTES"),
        ("bool", "BOOL"),
        ("bfloat16", "BF16"),
        ("int", "INT32"),
        ("FP99", None),
        ("", None),
    ],
)
def test_other_spellings_are_understood(written: str, meant: str | None) -> None:
    assert meant_datatype(written) == meant


def test_wire_names_need_no_advice() -> None:
    assert [meant_datatype(name) for name in sorted(WIRE_NAMES)] == [None] * len(WIRE_NAMES)
