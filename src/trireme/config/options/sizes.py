"""Sizes and durations as people write them: bytes with or without a unit, seconds."""

from __future__ import annotations

import re

from trireme.config.options.option import OptionError, ValueKind
from trireme.config.options.values import parse_float

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_STEPS = ("", "k", "m", "g", "t")


def parse_size(text: str) -> int | None:
    """The bytes of `1048576`, `512MB`, `2GiB` or `1.5g`; None for anything else. `MB` is a million bytes, `MiB` and
    `M` are 1024 times 1024, as memory is counted."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    unit = match.group(2).lower()
    is_decimal = unit.endswith("b") and not unit.endswith("ib") and unit != "b"
    prefix = unit.removesuffix("b").removesuffix("i")
    if prefix not in _STEPS or unit in ("i", "ib"):
        return None
    return int(float(match.group(1)) * (1000 if is_decimal else 1024) ** _STEPS.index(prefix))


def _read_size(text: str, flag: str) -> int:
    size = parse_size(text)
    if size is None:
        raise OptionError(f"expects bytes, with or without a unit, as in 1073741824, 512MiB or 2GB. Got {text}", flag)
    return size


def _read_seconds(text: str, flag: str) -> float:
    value = parse_float(text, flag)
    if value < 0:
        raise OptionError(f"expects seconds, 0 or more. Got {text}", flag)
    return value


BYTE_SIZE = ValueKind("bytes", _read_size)
SECONDS = ValueKind("seconds", _read_seconds)
