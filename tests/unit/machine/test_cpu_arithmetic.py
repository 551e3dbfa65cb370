"""What the processor can compute in."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.machine.cpu_arithmetic import emulates


@pytest.mark.parametrize(
    ("line", "native"),
    [
        ("flags\t\t: fpu vme avx512f avx512_bf16 amx_bf16 avx512_fp16", {"float16", "bfloat16"}),
        ("flags\t\t: fpu vme avx512f avx512_bf16", {"bfloat16"}),
        ("flags\t\t: fpu vme avx2 f16c", set()),
        ("Features\t: fp asimd bf16 i8mm", {"bfloat16"}),
        ("Features\t: fp asimd fphp asimdhp", set()),
        ("model name\t: something without flags", set()),
    ],
)
def test_types_are_native_where_the_processor_says_so(tmp_path: Path, line: str, native: set[str]) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{line}\n")
    assert {name for name in ("float16", "bfloat16") if not emulates(name, cpuinfo)} == native
    assert not emulates("float32", cpuinfo)


def test_nothing_is_native_where_nobody_tells(tmp_path: Path) -> None:
    assert emulates("bfloat16", tmp_path / "missing")
    assert emulates("float16", tmp_path / "missing")
