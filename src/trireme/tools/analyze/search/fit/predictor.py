"""The queueing model of one served model, fitted to what was measured so far."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trireme.tools.analyze.search.fit.service_times import Seen, ServiceTimes
from trireme.tools.analyze.search.fit.simulation import BATCHES, PERCENTILES, Queue, SimulatedResult, play
from trireme.tools.analyze.trial import Measured

_REACH = 1.5
"""How far a measurement corrects its neighbours, in doublings."""
_PRIOR = 0.5
_LARGEST_CORRECTION = 1.5
_LARGEST_LATENCY_CORRECTION = 4.0
"""A busy machine makes tails much longer than a queue does."""
_ROUGH_BATCHES = 40
_MEMORY_TAGS = ("cpu_used_ram", "gpu_used_memory")
Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration under one load, as the queue sees it."""

    instances: int
    largest_batch: int
    """In inferences; 1 where requests are not joined."""
    clients: int
    batch_size: int = 1
    """Inferences of a request."""

    @property
    def key(self) -> Key:
        return self.instances, self.largest_batch, self.clients


class Predictor:
    """Learns from measurements and tells the metrics of what was not measured."""

    def __init__(self) -> None:
        self._measured: dict[Key, tuple[Point, Measured]] = {}
        self._plain: dict[tuple[Key, int], dict[str, float]] = {}
        """Uncorrected predictions; they change with every measurement."""
        self._corrections: list[tuple[Key, dict[str, float]]] = []
        self._service = ServiceTimes(())
        self._spread: tuple[float, ...] = ()
        self._thinking: list[tuple[int, float]] = []

    def learn(self, point: Point, measured: Measured) -> None:
        """Takes a measurement in."""
        self._measured[point.key] = (point, measured)
        self._fit()

    def forget(self, point: Point) -> None:
        """What was measured there does not count from the next measurement on."""
        self._measured.pop(point.key, None)

    def predict(self, point: Point, is_rough: bool = False) -> dict[str, float]:
        """Metrics by tag, corrected by what near measurements showed; roughly for a third of the work."""
        found = dict(self._plain_of(point, _ROUGH_BATCHES if is_rough else BATCHES))
        near = [
            (math.exp(-0.5 * (_distance(point.key, other) / _REACH) ** 2), ratios)
            for other, ratios in self._corrections
        ]
        for tag in found:
            found[tag] *= _correction(near, tag)
        for tag in _MEMORY_TAGS:
            value = self._memory(point.instances, tag)
            if value is not None:
                found[tag] = value
        return found

    def _fit(self) -> None:
        self._service = ServiceTimes(list(_seen(self._measured.values())))
        least = min(self._measured.values(), key=lambda entry: entry[0].clients)
        self._spread = least[1].spread
        self._thinking = _thinking(self._measured.values())
        self._plain.clear()
        self._corrections = [
            (point.key, _ratios(one.metrics, self._plain_of(point))) for point, one in self._measured.values()
        ]

    def _plain_of(self, point: Point, batches: int = BATCHES) -> dict[str, float]:
        key = point.key, batches
        if key not in self._plain:
            queue = Queue(
                point.clients,
                point.instances,
                max(1, point.largest_batch // point.batch_size),
                self._think_s(point.clients),
            )

            def service(requests: int, busy: int) -> float:
                return self._service(requests * point.batch_size, busy)

            played = play(queue, service, self._spread, batches=batches)
            self._plain[key] = _metrics(played, point.batch_size)
        return self._plain[key]

    def _think_s(self, clients: int) -> float:
        """Interpolated over the logarithm of the clients, from what was seen outside of queue and model."""
        numbers = [number for number, _ in self._thinking]
        index = bisect_left(numbers, clients)
        if index == len(numbers):
            return self._thinking[-1][1]
        if index == 0 or numbers[index] == clients:
            return self._thinking[index][1]
        (low, low_s), (high, high_s) = self._thinking[index - 1], self._thinking[index]
        share = math.log(clients / low) / math.log(high / low)
        return low_s + (high_s - low_s) * share

    def _memory(self, instances: int, tag: str) -> float | None:
        """The largest seen with so many instances, or along the line through others."""
        seen: dict[int, float] = {}
        for point, one in self._measured.values():
            if tag in one.metrics:
                seen[point.instances] = max(seen.get(point.instances, 0.0), one.metrics[tag])
        if not seen or instances in seen:
            return seen.get(instances)
        low, high = min(seen), max(seen)
        slope = (seen[high] - seen[low]) / (high - low) if high > low else 0.0
        return seen[low] + max(0.0, slope) * (instances - low)


def _seen(entries: Iterable[tuple[Point, Measured]]) -> Iterable[Seen]:
    for point, one in entries:
        busy = min(point.instances, point.clients)
        for batch in one.batches:
            yield Seen(batch.size, busy, batch.count, batch.total_ns / batch.count / 1e9)


def _thinking(entries: Iterable[tuple[Point, Measured]]) -> list[tuple[int, float]]:
    """By clients: the seconds of a request outside of queue and model."""
    seen: dict[int, list[float]] = {}
    for point, one in entries:
        stages = ("queue", "compute_input", "compute_infer", "compute_output")
        inside = sum(one.metrics.get(f"perf_server_{stage}", 0.0) for stage in stages)
        # requests per second and not the latency: it has the client's own time between two requests as well
        cycle_ms = point.clients / max(one.metrics["perf_throughput"] / point.batch_size, 1e-9) * 1e3
        seen.setdefault(point.clients, []).append(max(0.0, cycle_ms - inside) / 1e3)
    return [(clients, min(values)) for clients, values in sorted(seen.items())]


def _metrics(played: SimulatedResult, batch_size: int) -> dict[str, float]:
    found = {
        "perf_throughput": played.requests_per_s * batch_size,
        "perf_latency_avg": played.mean_s * 1e3,
    }
    for percent in PERCENTILES:
        found[f"perf_latency_p{percent}"] = played.percentiles_s[percent] * 1e3
    return found


def _ratios(measured: Mapping[str, float], predicted: Mapping[str, float]) -> dict[str, float]:
    """Logarithms; a single measurement cannot turn everything over."""
    found = {}
    for tag, value in predicted.items():
        if tag in measured:
            most = math.log(_LARGEST_LATENCY_CORRECTION if "latency" in tag else _LARGEST_CORRECTION)
            found[tag] = min(most, max(-most, math.log(max(measured[tag], 1e-9) / max(value, 1e-9))))
    return found


def _correction(near: Iterable[tuple[float, Mapping[str, float]]], tag: str) -> float:
    """By the weighted mean of the logarithms, with a doubt of its own."""
    total, weights = 0.0, _PRIOR
    for weight, ratios in near:
        if tag in ratios:
            total += weight * ratios[tag]
            weights += weight
    return math.exp(total / weights)


def _distance(one: Sequence[int], other: Sequence[int]) -> float:
    return math.sqrt(sum((math.log2(max(1, a)) - math.log2(max(1, b))) ** 2 for a, b in zip(one, other, strict=True)))
