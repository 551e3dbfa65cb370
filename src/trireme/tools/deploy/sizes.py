"""Amounts of memory as people write and read them."""

from __future__ import annotations

import re

from trireme.tools.deploy.options import DeployError

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b|i)?", re.IGNORECASE)


def parse_size(text: str, flag: str) -> int:
    """`24GiB` and, as programs that have letters alone mean it, `24G`; `24GB` in powers of ten; a number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise DeployError(
            f"--{flag} '{text}' is not an amount of memory such as 24GiB, 24GB (powers of ten) or 512MiB, or a number "
            "of bytes"
        )
    base = 1000 if (match[3] or "").lower() == "b" else 1024
    return int(float(match[1]) * base ** _POWERS[match[2].lower()])


def size_text(size_bytes: int) -> str:
    """`13.5 GiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"


def count_text(count: int) -> str:
    """`7.2 B` parameters, as model cards write it."""
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return str(count)
