"""The last hour, in steps of ten seconds: a ring of columns for each model version, and one for the machine.

A model version takes COLUMNS x STEPS single-precision numbers, 18,720 bytes: 200 of them 3.7 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, Generic, TypeVar

STEP_S: Final = 10
STEPS: Final = 360
COLUMNS: Final = (
    "requests_per_s",
    "failures_per_s",
    "queue_us",
    "input_us",
    "infer_us",
    "output_us",
    "other_us",
    "p50_us",
    "p99_us",
    "batch_size",
    "pending",
    "cpu",
    "memory_mib",
)
"""`cpu` is in cores, `memory_mib` resident memory of the workers."""
_NOTHING: Final = float("nan")

Key = TypeVar("Key", bound=Hashable)


class History(Generic[Key]):
    """Rings by key, all with the same steps. Used on the event loop's thread."""

    def __init__(self, columns: Sequence[str] = COLUMNS, steps: int = STEPS) -> None:
        self.columns = tuple(columns)
        self._steps = steps
        self._count = 0  # steps there ever were
        self._times = array("d", [_NOTHING]) * steps
        self._rings: dict[Key, array[float]] = {}  # column behind column
        self._last: dict[Key, int] = {}  # the last step in which a key was there

    def add(self, time_s: float, values: Mapping[Key, Sequence[float]]) -> None:
        """One more step; a key that is not there has a gap, and is forgotten after a whole ring of them."""
        at = self._count % self._steps
        self._times[at] = time_s
        for key, ring in self._rings.items():
            if key not in values:
                ring[at :: self._steps] = array("f", [_NOTHING]) * len(self.columns)
        for key, row in values.items():
            found = self._rings.get(key)
            if found is None:
                found = self._rings[key] = array("f", [_NOTHING]) * (self._steps * len(self.columns))
            found[at :: self._steps] = array("f", row)
            self._last[key] = self._count
        self._count += 1
        for key in [key for key, last in self._last.items() if self._count - last > self._steps]:
            del self._rings[key], self._last[key]

    def times(self) -> list[float]:
        """When the steps were, the oldest first."""
        return [self._times[at] for at in self._order()]

    def columns_of(self, key: Key) -> dict[str, list[float | None]]:
        """By column: its values, the oldest first; None where nothing is known."""
        ring = self._rings.get(key)
        if ring is None:
            return {}
        order = self._order()
        return {
            name: [_rounded(ring[index * self._steps + at]) for at in order] for index, name in enumerate(self.columns)
        }

    def tails(self, column: str, count: int) -> dict[Key, list[float]]:
        """By key: the last values of one column, as far as they are known."""
        start = self.columns.index(column) * self._steps
        places = [start + at for at in self._order()[-count:]]
        return {key: [value for at in places if (value := ring[at]) == value] for key, ring in self._rings.items()}

    def _order(self) -> list[int]:
        first = max(0, self._count - self._steps)
        return [number % self._steps for number in range(first, self._count)]


def _rounded(value: float) -> float | None:
    """Single precision has seven digits; more would be noise on the wire."""
    return None if value != value else float(f"{value:.5g}")
