"""Which floating point types the processor has arithmetic for that PyTorch uses."""

from __future__ import annotations

import contextlib
from pathlib import Path

_FLAGS = {
    # Of ARM's processors many compute with float16; PyTorch's products of matrices do not make use of it.
    "float16": {"avx512_fp16", "amx_fp16"},
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16", "svebf16"},
}
_READ_BYTES = 4096  # the first core's entry; there may be hundreds


def emulates(dtype: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor takes several times as long with this type as with float32."""
    return dtype in _FLAGS and _FLAGS[dtype].isdisjoint(_flags(cpuinfo))


def _flags(cpuinfo: Path) -> list[str]:
    with contextlib.suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as file:
        for line in file.read(_READ_BYTES).splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                return value.split()
    return []
