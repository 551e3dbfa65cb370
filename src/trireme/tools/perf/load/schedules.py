"""When requests are due: an endless or finite series of nanoseconds after the beginning."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from trireme.tools.perf.bounded_files import read_bounded
from trireme.tools.perf.errors import PerfError


@dataclass(frozen=True, slots=True)
class Schedule:
    """A series that can be handed to another process."""

    kind: str
    """constant, poisson, intervals or fixed."""
    rate: float = 0.0
    seed: int = 0
    values: tuple[float, ...] = ()

    def times(self) -> Iterator[int]:
        """Nanoseconds after the beginning."""
        if self.kind == "constant":
            return constant(self.rate)
        if self.kind == "poisson":
            return poisson(self.rate, self.seed)
        return repeated(self.values) if self.kind == "intervals" else fixed(self.values)


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """How much load there is to be from now on."""

    concurrency: int = 0
    schedule: Schedule | None = None
    budget: int | None = None
    """So many requests in all; None for no end."""
    step: int = 0
    period: int = 0
    """Of a periodic concurrency: how many are added, and after how many responses."""


def constant(rate: float) -> Iterator[int]:
    """So many per second, evenly."""
    number = 0
    while True:
        yield int(number * 1e9 / rate)
        number += 1


def poisson(rate: float, seed: int) -> Iterator[int]:
    """So many per second on average, by chance."""
    generator = random.Random(seed)
    elapsed = 0.0
    while True:
        yield int(elapsed * 1e9)
        elapsed += generator.expovariate(rate)


def repeated(intervals_us: Sequence[float]) -> Iterator[int]:
    """With these pauses between requests, over and over."""
    elapsed_ns = 0
    for interval in cycle(intervals_us):
        elapsed_ns += int(interval * 1000)
        yield elapsed_ns


def fixed(timestamps_ms: Sequence[float]) -> Iterator[int]:
    """Each once, at its time."""
    first = min(timestamps_ms, default=0.0)
    for timestamp in timestamps_ms:
        yield int((timestamp - first) * 1e6)


def read_intervals(path: str) -> list[float]:
    """The microseconds of a file, one number per line; raises PerfError."""
    intervals = []
    try:
        lines = read_bounded(path).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PerfError(f"failed to read the request intervals: '{path}': {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            interval = float(line)
        except ValueError:
            interval = -1.0
        if not 0 <= interval < math.inf:
            raise PerfError(f"'{path}', line {number}: '{line.strip()}' is no number of microseconds")
        intervals.append(interval)
    if not intervals or not sum(intervals):
        raise PerfError(f"the file of request intervals '{path}' has no interval above zero")
    return intervals


def mean_rate(intervals_us: Sequence[float]) -> float:
    """Requests per second that the intervals make."""
    return len(intervals_us) * 1e6 / sum(intervals_us)
