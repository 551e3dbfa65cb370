"""Which levels of a range are measured, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from trireme.tools.perf.options import NO_LIMIT, Range

Visit = Callable[[float], bool]
"""Measures a level; whether the search may go on above it."""


def linear(levels: Range, visit: Visit, most: float | None = None) -> None:
    """From the start in steps, to the end or as far as the latency limit lets it; `most` where there is no end."""
    level = levels.start
    end = levels.end if levels.end != NO_LIMIT else most
    while visit(level):
        level += levels.step
        if end is not None and level > end:
            return


def binary(levels: Range, visit: Visit) -> None:
    """The start, the end, and then always the middle between what holds the limit and what does not."""
    if not visit(levels.start) or levels.start == levels.end or visit(levels.end):
        return
    low, high = levels.start, levels.end
    while high - low > levels.step:
        middle = _middle(low, high)
        if visit(middle):
            low = middle
        else:
            high = middle


def _middle(low: float, high: float) -> float:
    middle = (low + high) / 2
    return int(middle) if isinstance(low, int) else middle
