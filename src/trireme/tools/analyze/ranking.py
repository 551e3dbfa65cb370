"""Which results are good: constraints, weighted objectives, and the order of variants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trireme.tools.analyze.metrics import METRICS
from trireme.tools.analyze.options import Constraint, Goals, ModelOptions
from trireme.tools.analyze.trial import Measured, Result, Setting

Settings = tuple[tuple[str, Setting], ...]
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Ranked:
    """A variant of all models, with its best result first."""

    settings: Settings
    best: Result
    results: tuple[Result, ...]
    is_satisfying: bool


class Ranking:
    """The goals for every model that is asked."""

    def __init__(self, models: Sequence[ModelOptions]) -> None:
        self._models = {model.name: model for model in models}

    def goals(self, model: str) -> Goals:
        return self._models[model].goals

    def constraints(self) -> list[tuple[str, Constraint]]:
        return [(name, one) for name, model in self._models.items() for one in model.goals.constraints]

    def violation(self, measured: Iterable[Measured]) -> float:
        """How far the bounds are passed, relatively and added up; 0 where all are kept."""
        return sum(violation(one.metrics, self.goals(one.model).constraints) for one in measured)

    def score(self, measured: Iterable[Measured]) -> float:
        """Grows with every objective by its weight: the logarithm of a weighted geometric mean, so that an order does
        not hang on units or on what is compared with what."""
        total = 0.0
        for one in measured:
            model = self._models[one.model]
            total += model.weighting * score(one.metrics, model.goals.objectives)
        return total

    def key(self, result: Result) -> tuple[bool, float]:
        """Larger is better; what keeps the constraints is before all that does not."""
        passed = self.violation(result.measured)
        return (True, self.score(result.measured)) if passed == 0 else (False, -passed)

    def is_satisfying(self, result: Result) -> bool:
        return self.violation(result.measured) == 0

    def by_variant(self, results: Iterable[Result]) -> list[Ranked]:
        """Variants, the best first; results of each by their load."""
        groups: dict[Settings, list[Result]] = {}
        for result in results:
            groups.setdefault(result.trial.settings, []).append(result)
        ranked = []
        for settings, found in groups.items():
            best = max(found, key=self.key)
            ordered = sorted(found, key=lambda result: [load.level for load in result.trial.loads])
            ranked.append(Ranked(settings, best, tuple(ordered), self.is_satisfying(best)))
        return sorted(ranked, key=lambda one: self.key(one.best), reverse=True)


def violation(metrics: Mapping[str, float], constraints: Iterable[Constraint]) -> float:
    """A metric that is not there passes nothing: a machine without accelerators has no memory of theirs in use."""
    total = 0.0
    for one in constraints:
        value = metrics.get(one.tag)
        if value is None:
            continue
        if one.most is not None and value > one.most:
            total += value / max(one.most, _TINY) - 1
        if one.least is not None and value < one.least:
            total += one.least / max(value, _TINY) - 1
    return total


def score(metrics: Mapping[str, float], objectives: Mapping[str, float]) -> float:
    if not objectives:
        objectives = {"output_token_throughput" if "output_token_throughput" in metrics else "perf_throughput": 1.0}
    whole = sum(objectives.values())
    total = 0.0
    for tag, weight in objectives.items():
        if tag in metrics:
            sign = 1 if METRICS[tag].is_more_better else -1
            total += sign * weight / whole * math.log(max(metrics[tag], _TINY))
    return total
