"""What the processor can compute in."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.devices.cpu import emulates


@pytest.mark.parametrize(
    ("line", "is_native"),
    [
        ("flags\t\t: fpu vme avx512f avx512_bf16", True),
        ("flags\t\t: fpu vme avx2", False),
        ("Features\t: fp asimd bf16 i8mm", True),
        ("Features\t: fp asimd asimdhp", False),
        ("model name\t: something without flags", False),
    ],
)
def test_bfloat16_is_native_where_the_processor_says_so(tmp_path: Path, line: str, is_native: bool) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{line}\n")
    assert emulates("bfloat16", cpuinfo) is not is_native
    assert emulates("float16", cpuinfo)
    assert not emulates("float32", cpuinfo)


def test_nothing_is_native_where_nobody_tells(tmp_path: Path) -> None:
    assert emulates("bfloat16", tmp_path / "missing")
