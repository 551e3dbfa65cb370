"""What is measured, and what came of it: settings of models, loads, trials and their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """What one variant of a model's configuration changes; None leaves the model's own value."""

    instances: int | None = None
    max_batch_size: int | None = None
    max_sequences: int | None = None
    """Of a language model: how many answers its engine writes at a time."""
    max_step_tokens: int | None = None
    """Of a language model: how many tokens one step of its engine takes."""
    other: str = ""
    """Other fields of the configuration, as a JSON object with sorted names."""

    @property
    def is_default(self) -> bool:
        return self == Setting()

    def changed(self, values: Mapping[str, int]) -> Setting:
        """With these fields set."""
        fields: dict[str, Any] = dict(values)
        return replace(self, **fields)


@dataclass(frozen=True, slots=True)
class Load:
    """How one model is loaded: by so many requests always under way, or so many per second."""

    model: str
    concurrency: int = 1
    batch_size: int = 1
    request_rate: float | None = None

    @property
    def level(self) -> float:
        return self.concurrency if self.request_rate is None else self.request_rate


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings of every model that is changed, and the loads that run at the same time."""

    settings: tuple[tuple[str, Setting], ...]
    loads: tuple[Load, ...]

    def setting(self, model: str) -> Setting:
        return dict(self.settings).get(model, Setting())


@dataclass(frozen=True, slots=True)
class BatchTime:
    """What the server spent on batches of one size."""

    size: int
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One model's share of a trial: metrics by tag, and what they were made of."""

    model: str
    metrics: Mapping[str, float]
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By the accelerator's name."""
    batches: tuple[BatchTime, ...] = ()
    inner_batches: tuple[tuple[str, tuple[BatchTime, ...]], ...] = ()
    """Those of the models that a request goes through inside of this one, by name."""
    spread: tuple[float, ...] = ()
    """Latencies over their mean at a few quantiles, for the queueing model."""
    is_stable: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """A trial and what was measured, one entry per load, in the order of the loads."""

    trial: Trial
    measured: tuple[Measured, ...]
    seconds: float = 0.0
    is_probe: bool = False
    """Measured for a short time, to learn from rather than to rank."""
    repeats: tuple[float, ...] = ()
    """Inferences per second that other measurements of the same trial have shown."""

    def of(self, model: str) -> Measured:
        return next(one for one in self.measured if one.model == model)


def throughput(result: Result) -> float:
    """Inferences per second of all its loads."""
    return sum(one.metrics.get("perf_throughput", 0.0) for one in result.measured)


def result_to_json(result: Result) -> dict[str, Any]:
    """As a checkpoint keeps it."""
    return {
        "settings": {model: asdict(setting) for model, setting in result.trial.settings},
        "loads": [asdict(load) for load in result.trial.loads],
        "measured": [asdict(one) for one in result.measured],
        "seconds": result.seconds,
        "is_probe": result.is_probe,
        "repeats": result.repeats,
    }


def result_from_json(entry: Mapping[str, Any]) -> Result:
    """Raises KeyError, TypeError or ValueError for what is no result."""
    settings = tuple((model, Setting(**values)) for model, values in entry["settings"].items())
    loads = tuple(Load(**values) for values in entry["loads"])
    measured = tuple(
        Measured(
            values["model"],
            {str(tag): float(value) for tag, value in values["metrics"].items()},
            values["devices"],
            _batches(values["batches"]),
            tuple((name, _batches(batches)) for name, batches in values.get("inner_batches", ())),
            tuple(values["spread"]),
            bool(values["is_stable"]),
        )
        for values in entry["measured"]
    )
    repeats = tuple(float(value) for value in entry.get("repeats", ()))
    return Result(Trial(settings, loads), measured, float(entry["seconds"]), bool(entry["is_probe"]), repeats)


def _batches(entries: Iterable[Mapping[str, int]]) -> tuple[BatchTime, ...]:
    return tuple(BatchTime(**entry) for entry in entries)
