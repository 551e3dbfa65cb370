"""Latencies counted in buckets of equal relative width, as HdrHistogram has them.

Own counting in place of a package: numpy counts a whole window in one call, where the package takes a call per value.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SUB_BUCKETS = 2048
"""Three significant digits: below this every value has a bucket of its own, above it buckets double."""
_HALF = _SUB_BUCKETS // 2


class Histogram:
    """Counts of microseconds."""

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._total = 0.0
        self._squares = 0.0
        self.largest_us = 0

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def mean_us(self) -> float:
        return self._total / self.count if self.count else 0.0

    @property
    def deviation_us(self) -> float:
        if not self.count:
            return 0.0
        return float(max(0.0, self._squares / self.count - self.mean_us**2) ** 0.5)

    def add(self, latencies_ns: npt.NDArray[np.int64]) -> None:
        """Counts all of them."""
        if not len(latencies_ns):
            return
        values = np.maximum(latencies_ns // 1000, 0)
        counts = np.bincount(_bucket(values))
        size = max(len(counts), len(self._counts))
        joined = np.zeros(size, np.int64)
        joined[: len(self._counts)] += self._counts
        joined[: len(counts)] += counts
        self._counts = joined
        self._total += float(values.sum())
        self._squares += float(np.square(values.astype(np.float64)).sum())
        self.largest_us = max(self.largest_us, int(values.max()))

    def buckets(self) -> list[tuple[int, int]]:
        """Upper ends and counts of the buckets that have any."""
        used = np.nonzero(self._counts)[0]
        return [(min(_highest(int(index)), self.largest_us), int(self._counts[index])) for index in used]


def _bucket(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0 to 2047 as they are; then 1024 buckets for each doubling."""
    exponents = np.maximum(np.frexp(values.astype(np.float64))[1] - 11, 0).astype(np.int64)
    indexes: npt.NDArray[np.int64] = exponents * _HALF + (values >> exponents)
    return indexes


def _highest(index: int) -> int:
    if index < _SUB_BUCKETS:
        return index
    exponent = index // _HALF - 1
    return ((index - exponent * _HALF + 1) << exponent) - 1
