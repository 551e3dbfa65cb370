"""Options that are numbers within bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trireme.backends.compiled.batching import RequestError


def fraction(options: Mapping[str, Any], name: str, default: float) -> float:
    """A number from 0 to 1; raises RequestError."""
    value: float = options.get(name, default)
    if not 0 <= value <= 1:
        raise RequestError(f"'{name}' must be from 0 to 1, found {value}")
    return value


def number(options: Mapping[str, Any], name: str, default: float) -> float:
    """A number that is one; raises RequestError."""
    value: float = options.get(name, default)
    if not math.isfinite(value):
        raise RequestError(f"'{name}' must be a finite number, found {value}")
    return value


def whole(options: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    """A whole number within bounds; raises RequestError."""
    value: int = options.get(name, default)
    if not least <= value <= most:
        raise RequestError(f"'{name}' must be from {least} to {most}, found {value}")
    return value
