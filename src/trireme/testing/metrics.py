"""The metrics that a model under test declares, for assertions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.core.errors import ErrorKind, ServingError


class Metrics:
    """Families and series as the server would keep them, without their expiry."""

    def __init__(self) -> None:
        self._families: list[tuple[str, str, str]] = []
        self._series: list[tuple[str, dict[str, str]]] = []
        self._observed: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """Of a counter or gauge."""
        return sum(self.observations(name, labels))

    def observations(self, name: str, labels: Mapping[str, str] | None = None) -> list[float]:
        """Of a histogram, in order; KeyError where the model has no such series."""
        return self._observed[_key(name, labels or {})]

    @property
    def names(self) -> list[str]:
        """Of the families, in the order of their declaration."""
        return list(dict.fromkeys(name for name, _, _ in self._families))

    def apply(self, operation: str, arguments: tuple[Any, ...]) -> Any:
        """One METRIC message."""
        if operation == "create_family":
            return self._create_family(*arguments)
        if operation == "create_metric":
            return self._create_metric(*arguments)
        if operation == "update":
            return self._update(*arguments)
        if operation == "value":
            return self.value(*self._series[arguments[0]])
        return None  # deleted series stay, so that a test can look at them

    def _create_family(self, name: str, description: str, kind: str) -> int:
        for known, _, known_kind in self._families:
            if known == name and known_kind != kind:
                raise ServingError(f"metric family '{name}' exists as {known_kind}", ErrorKind.INVALID_ARGUMENT)
        self._families.append((name, description, kind))
        return len(self._families) - 1

    def _create_metric(self, family: int, labels: dict[str, str], buckets: list[float] | None) -> int:
        if buckets is not None and sorted(set(buckets)) != buckets:
            raise ServingError("Bucket Boundaries must be strictly sorted", ErrorKind.INVALID_ARGUMENT)
        name = self._families[family][0]
        self._observed.setdefault(_key(name, labels), [])
        self._series.append((name, labels))
        return len(self._series) - 1

    def _update(self, metric: int, operation: str, value: float) -> None:
        values = self._observed[_key(*self._series[metric])]
        if operation == "set":
            values.clear()
        values.append(value)


def _key(name: str, labels: Mapping[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))
