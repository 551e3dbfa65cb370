"""Metrics that users' models declare: families and series shared by name, held by handles."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.core.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, UnsupportedError
from trireme.observe.prometheus import PageWriter, label_text

KINDS = ("counter", "gauge", "histogram")
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
_SERVER_PREFIXES = ("nv_inference_", "nv_cpu_", "nv_gpu_", "nv_cache_", "nv_pinned_memory_", "nv_model_", "trireme_")
_FAMILY_DELETED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)
_ALLOWED = {"counter": ("increment",), "gauge": ("increment", "set"), "histogram": ("observe", "observe_counts")}


class _Family:
    __slots__ = ("description", "holders", "kind", "name", "series")

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name = name
        self.description = description
        self.kind = kind
        self.holders = 0
        self.series: dict[str, _Series] = {}  # by label text


class _Series:
    __slots__ = ("bounds", "counts", "family", "holders", "labels", "value")

    def __init__(self, family: _Family, labels: str, bounds: tuple[float, ...]) -> None:
        self.family = family
        self.labels = labels
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.value = 0.0  # of a histogram: the sum
        self.holders = 0


class _FamilyHandle:
    __slots__ = ("family", "metrics", "owner")

    def __init__(self, family: _Family, owner: str) -> None:
        self.family = family
        self.owner = owner
        self.metrics: set[int] = set()


class CustomMetrics:
    """Implements `CustomMetricsPort`.

    A handle on a metric lives under the handle on its family: when that one is given back, the metric's operations
    fail and its hold on the series ends.
    """

    __slots__ = ("_families", "_family_handles", "_metric_handles", "_next")

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._family_handles: dict[int, _FamilyHandle] = {}
        self._metric_handles: dict[int, tuple[_Series, int] | None] = {}  # None once the family's handle is gone
        self._next = itertools.count(1)

    def create_family(self, owner: str, name: str, description: str, kind: str) -> int:
        """A handle on the family; the first description stays."""
        if kind not in KINDS:
            raise InvalidArgumentError(f"metric kind '{kind}' is not one of {', '.join(KINDS)}")
        if not _METRIC_NAME.match(name):
            raise InvalidArgumentError("Invalid metric name")
        if name.startswith(_SERVER_PREFIXES):
            raise AlreadyExistsError(f"metric name '{name}' has a prefix that is kept for the server's own metrics")
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(name, description, kind)
        elif family.kind != kind:
            raise InvalidArgumentError("Family name already exists with different type")
        family.holders += 1
        handle = next(self._next)
        self._family_handles[handle] = _FamilyHandle(family, owner)
        return handle

    def create_metric(self, family: int, labels: Mapping[str, str], buckets: Sequence[float] | None) -> int:
        """A handle on one series; equal labels are the same series, whose first buckets stay."""
        held = self._family_handles.get(family)
        if held is None:
            raise NotFoundError(_FAMILY_DELETED)
        bounds = _checked_bounds(held.family.kind, buckets)
        for name in labels:
            if not _LABEL_NAME.match(name) or (name == "le" and held.family.kind == "histogram"):
                raise InvalidArgumentError("Invalid label name")
        text = label_text(labels)
        series = held.family.series.get(text)
        if series is None:
            series = held.family.series[text] = _Series(held.family, text, bounds)
        series.holders += 1
        handle = next(self._next)
        self._metric_handles[handle] = (series, family)
        held.metrics.add(handle)
        return handle

    def update(self, metric: int, operation: str, value: Any) -> None:
        """Changes the series; raises where its kind has no such operation."""
        series = self._series(metric)
        kind = series.family.kind
        if operation not in _ALLOWED[kind]:
            raise _unsupported(kind, operation)
        if operation == "observe":
            series.counts[bisect_left(series.bounds, value)] += 1
            series.value += value
        elif operation == "observe_counts":
            counts, total = value
            if len(counts) != len(series.counts):
                raise InvalidArgumentError(f"{len(counts)} counts for a histogram of {len(series.counts)} buckets")
            series.counts = [known + more for known, more in zip(series.counts, counts, strict=True)]
            series.value += total
        elif operation == "set":
            series.value = float(value)
        elif kind == "counter" and not value >= 0:
            raise InvalidArgumentError(
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
            )
        else:
            series.value += value

    def value(self, metric: int) -> float:
        """The present value of a counter or gauge."""
        series = self._series(metric)
        if series.family.kind == "histogram":
            raise _unsupported("histogram", "value")
        return series.value

    def delete_metric(self, metric: int) -> None:
        """Gives the handle back; giving back one that is unknown, or gone already, does nothing."""
        held = self._metric_handles.pop(metric, None)
        if held is None:
            return
        series, family = held
        self._family_handles[family].metrics.discard(metric)
        _release_series(series)

    def delete_family(self, family: int) -> None:
        """Gives the handle back, and ends the hold of the metrics made from it."""
        held = self._family_handles.pop(family, None)
        if held is None:
            return
        for metric in held.metrics:
            entry = self._metric_handles[metric]
            if entry is not None:
                _release_series(entry[0])
            self._metric_handles[metric] = None
        held.family.holders -= 1
        if held.family.holders == 0:
            del self._families[held.family.name]

    def release(self, owner: str) -> None:
        """Gives back every handle that this owner still holds."""
        for handle in [key for key, held in self._family_handles.items() if held.owner == owner]:
            metrics = self._family_handles[handle].metrics
            self.delete_family(handle)
            for metric in metrics:
                self._metric_handles.pop(metric, None)

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        for family in self._families.values():
            writer.family(family.name, family.kind, family.description)
            for series in family.series.values():
                if family.kind == "histogram":
                    writer.histogram(series.labels, series.bounds, series.counts, series.value)
                else:
                    writer.sample(series.labels, series.value)

    def _series(self, metric: int) -> _Series:
        held = self._metric_handles.get(metric)
        if held is None:
            raise NotFoundError(_FAMILY_DELETED)
        return held[0]


def _checked_bounds(kind: str, buckets: Sequence[float] | None) -> tuple[float, ...]:
    if kind != "histogram":
        if buckets is not None:
            raise InvalidArgumentError("Failed to create metric. Unexpected buckets found.")
        return ()
    if buckets is None:
        raise InvalidArgumentError("Failed to create metric. Missing required buckets.")
    bounds = tuple(float(bound) for bound in buckets)
    if any(not low < high for low, high in itertools.pairwise(bounds)):
        raise InvalidArgumentError("Bucket Boundaries must be strictly sorted")
    return bounds


def _unsupported(kind: str, operation: str) -> UnsupportedError:
    return UnsupportedError(f"TRITONSERVER_METRIC_KIND_{kind.upper()} does not support {operation.capitalize()}")


def _release_series(series: _Series) -> None:
    series.holders -= 1
    if series.holders == 0:
        del series.family.series[series.labels]
