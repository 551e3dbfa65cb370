"""Numbers as the original writes them."""

from __future__ import annotations


def six_digits(value: float) -> str:
    """Six significant digits, as C++ streams have them."""
    return f"{value:g}"


def average_us(total_ns: int, count: int) -> int:
    """Microseconds per event, cut off."""
    return total_ns // (count * 1000) if count else 0
