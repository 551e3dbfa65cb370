"""How long a model works on a batch, by the batch's size and by how many instances are at work, from what was seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

_FEWEST = 2
"""Batches of a size that are believed."""
_UNKNOWN_S = 1e-3
Curve = list[tuple[int, float]]
"""Mean seconds by size, in rising order of sizes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Batches of one size, in one measurement."""

    size: int
    busy: int
    """Instances that were at work, this one included."""
    count: int
    mean_s: float


class ServiceTimes:
    """A curve over the sizes for every number of instances at work that was seen, and a rule between them."""

    def __init__(self, seen: Iterable[Seen]) -> None:
        everything = list(seen)
        believed = [one for one in everything if one.count >= _FEWEST] or everything
        self._curves = {
            busy: _curve(one for one in believed if one.busy == busy) for busy in {x.busy for x in believed}
        }
        self._levels = sorted(self._curves)
        self._known: dict[tuple[int, int], float] = {}
        """Asked for again and again while a queue is played."""

    def __call__(self, size: int, busy: int) -> float:
        """Seconds."""
        found = self._known.get((size, busy))
        if found is None:
            found = self._known[size, busy] = self._estimated(size, busy)
        return found

    def _estimated(self, size: int, busy: int) -> float:
        """Between what was seen, more instances are taken to add as much as they can until they have added
        what was seen: too hopeful, which the next measurement shows."""
        levels = self._levels
        if not levels:
            return _UNKNOWN_S
        index = bisect_left(levels, busy)
        if index < len(levels) and levels[index] == busy:
            return self._at(busy, size)
        if index == 0:
            return self._at(levels[0], size)
        if index == len(levels):  # as if nothing were left to add
            return self._at(levels[-1], size) * busy / levels[-1]
        low, high = levels[index - 1], levels[index]
        low_s, high_s = self._at(low, size), self._at(high, size)
        if high / high_s <= low / low_s or high_s <= low_s:  # more instances do less, or each does more: in proportion
            return low_s + (high_s - low_s) * (busy - low) / (high - low)
        return max(low_s, busy * high_s / high)

    def _at(self, busy: int, size: int) -> float:
        """By the curve of this level; where that saw one size alone, in the shape of the curve that saw the most."""
        curve = self._curves[busy]
        if len(curve) > 1:
            return _on(curve, size)
        fullest = max(self._curves.values(), key=len)
        seen_size, seen_s = curve[0]
        if len(fullest) == 1:
            return seen_s * size / seen_size if size > seen_size else seen_s
        return seen_s * _on(fullest, size) / max(_on(fullest, seen_size), 1e-9)


def _curve(seen: Iterable[Seen]) -> Curve:
    sums: dict[int, list[float]] = {}
    for one in seen:
        entry = sums.setdefault(one.size, [0.0, 0.0])
        entry[0] += one.count * one.mean_s
        entry[1] += one.count
    return [(size, total / count) for size, (total, count) in sorted(sums.items())]


def _on(curve: Curve, size: int) -> float:
    sizes = [one[0] for one in curve]
    index = bisect_left(sizes, size)
    if index < len(curve) and sizes[index] == size:
        return curve[index][1]
    if index == 0:
        return curve[0][1]  # no smaller batch was seen: it is no faster than the smallest that was
    if index == len(curve):
        return _beyond(curve, size)
    (low, low_s), (high, high_s) = curve[index - 1], curve[index]
    return low_s + (high_s - low_s) * (size - low) / (high - low)


def _beyond(curve: Curve, size: int) -> float:
    """Along the line through the smallest and the largest that were seen, which noise between neighbours does not
    turn."""
    (first, first_s), (last, last_s) = curve[0], curve[-1]
    slope = max(0.0, (last_s - first_s) / (last - first)) if last > first else last_s / last
    return last_s + slope * (size - last)
