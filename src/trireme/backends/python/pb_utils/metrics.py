"""`MetricFamily` and `Metric`: metrics that a model declares, kept and shown by the server."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.types import as_text

_ORPHANED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)
_NEGATIVE = "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
_CANNOT_CREATE = "Failed to create metric. "


class MetricKind(enum.Enum):
    """What a family's metrics do."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


_OPERATIONS = {
    MetricKind.COUNTER: ("increment", "value"),
    MetricKind.GAUGE: ("increment", "set", "value"),
    MetricKind.HISTOGRAM: ("observe",),
}


class MetricFamily:
    """A name, a description and a kind; lives on the server as long as this object."""

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str | bytes, description: str | bytes, kind: MetricKind) -> None:
        self._family: _Family | None = None
        texts = as_text("MetricFamily: name", name), as_text("MetricFamily: description", description)
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily: kind must be MetricKind, found {type(kind).__name__}")
        runtime = pb_runtime.current()
        arguments = (*texts, kind.name.lower())
        try:
            handle = runtime.server_calls.ask(messages.METRIC, "create_family", arguments)
        except TritonModelException as error:
            raise TritonModelException(f"Error when creating MetricFamily: {error}") from None
        self._family = _Family(runtime, handle, kind)

    def Metric(self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None) -> Metric:
        """One series of the family; the same labels are the same series."""
        assert self._family is not None
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException(_CANNOT_CREATE + "Labels must be a dictionary.")
        for key, value in (labels or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TritonModelException("Error when creating Metric: label names and values must be str")
        if self._family.kind is MetricKind.HISTOGRAM:
            if buckets is None:
                raise TritonModelException(_CANNOT_CREATE + "Missing required buckets.")
            if not isinstance(buckets, list):
                raise TritonModelException(_CANNOT_CREATE + "Buckets must be a list.")
        elif buckets is not None:
            raise TritonModelException(_CANNOT_CREATE + "Unexpected buckets found.")
        return Metric(self._family, dict(labels or {}), None if buckets is None else [float(b) for b in buckets])

    def __del__(self) -> None:
        if self._family is not None:
            self._family.is_deleted = True
            self._family.runtime.channel.post((messages.METRIC, 0, "delete_family", (self._family.handle,)))


class _Family:
    """What a family and its metrics share."""

    __slots__ = ("handle", "is_deleted", "kind", "runtime")

    def __init__(self, runtime: pb_runtime.Runtime, handle: int, kind: MetricKind) -> None:
        self.runtime = runtime
        self.handle = handle
        self.kind = kind
        self.is_deleted = False


class Metric:
    """One series. Changes are checked here and sent without waiting for an answer."""

    def __init__(self, family: _Family, labels: dict[str, str], buckets: list[float] | None) -> None:
        self._handle: int | None = None
        self._family = family
        try:
            arguments = (family.handle, labels, buckets)
            self._handle = family.runtime.server_calls.ask(messages.METRIC, "create_metric", arguments)
        except TritonModelException as error:
            raise TritonModelException(f"Error when creating Metric: {error}") from None

    def increment(self, value: float) -> None:
        """Counters only upwards, gauges both ways."""
        number = self._checked("increment", value)
        if self._family.kind is MetricKind.COUNTER and (number < 0 or math.isnan(number)):
            raise TritonModelException(f"Failed to increment metric value: {_NEGATIVE}")
        self._update("increment", number)

    def set(self, value: float) -> None:
        """Gauges only."""
        self._update("set", self._checked("set", value))

    def observe(self, value: float) -> None:
        """Histograms only."""
        self._update("observe", self._checked("observe", value))

    def observe_counts(self, counts: Sequence[int], total: float) -> None:
        """Histograms only: many observations at once, as how many fell into each bucket, the last above all bounds,
        and their sum. Not known to Triton."""
        self._check("observe", "observe", "Observe")
        self._family.runtime.channel.send(
            (messages.METRIC, 0, "update", (self._handle, "observe_counts", (list(counts), float(total))))
        )

    def value(self) -> float:
        """The present value of a counter or gauge, shared by everyone who has this series."""
        self._check("get", "value", "Value")
        try:
            return float(self._family.runtime.server_calls.ask(messages.METRIC, "value", (self._handle,)))
        except TritonModelException as error:
            raise TritonModelException(f"Failed to get metric value: {error}") from None

    def _checked(self, operation: str, value: float) -> float:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"Metric.{operation}: expected a number, found {type(value).__name__}")
        number = float(value)
        self._check(operation, operation, operation.capitalize())
        return number

    def _check(self, verb: str, operation: str, title: str) -> None:
        if self._family.is_deleted:
            raise TritonModelException(_ORPHANED)
        kind = self._family.kind
        if operation not in _OPERATIONS[kind]:
            raise TritonModelException(
                f"Failed to {verb} metric value: TRITONSERVER_METRIC_KIND_{kind.name} does not support {title}"
            )

    def _update(self, operation: str, value: float) -> None:
        self._family.runtime.channel.send((messages.METRIC, 0, "update", (self._handle, operation, value)))

    def __del__(self) -> None:
        if self._handle is not None:
            self._family.runtime.channel.post((messages.METRIC, 0, "delete_metric", (self._handle,)))
