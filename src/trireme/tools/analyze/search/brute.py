"""Every configuration under every load, but for those behind a point where nothing is gained any more."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from trireme.tools.analyze.configuration.space import Space
from trireme.tools.analyze.ranking import Ranking, Settings
from trireme.tools.analyze.search.port import Measure
from trireme.tools.analyze.trial import Result, Setting

_PATIENCE = 4
"""Loads in a row without a gain that end a series."""
_BATCH_PATIENCE = 2
_GAIN = 1.05


def brute(space: Space, measure: Measure, ranking: Ranking, exits_early: bool) -> None:
    """The model's own configuration first, then all others."""
    for batch_size in space.batch_sizes():
        sweep(space, space.default, batch_size, measure, ranking, exits_early)
        for _, group in itertools.groupby(space.combinations(), _without_batch):
            bests: list[float] = []
            for settings in group:
                found = sweep(space, settings, batch_size, measure, ranking, exits_early)
                bests.append(max((_gain_of(result) for result in found), default=0.0))
                if exits_early and _is_flat(bests, _BATCH_PATIENCE):
                    break


def sweep(
    space: Space, settings: Settings, batch_size: int, measure: Measure, ranking: Ranking, exits_early: bool = True
) -> list[Result]:
    """One configuration under rising load, until nothing is gained or a bound that only gets worse is passed."""
    found: list[Result] = []
    gains: list[float] = []
    for trial in space.trials(settings, batch_size):
        result = measure(trial)
        if result is None:
            break
        found.append(result)
        gains.append(_gain_of(result))
        if exits_early and (_is_flat(gains, _PATIENCE) or (len(found) > 1 and _is_too_slow(found[-2:], ranking))):
            break
    return found


def _gain_of(result: Result) -> float:
    return sum(one.metrics.get("output_token_throughput", one.metrics["perf_throughput"]) for one in result.measured)


def _is_flat(values: Sequence[float], patience: int) -> bool:
    if len(values) <= patience:
        return False
    return max(values[-patience:]) < max(values[:-patience]) * _GAIN


def _is_too_slow(last: Sequence[Result], ranking: Ranking) -> bool:
    """Both passed an upper bound of a latency, which more load does not mend."""
    bounds = [(name, one) for name, one in ranking.constraints() if one.most is not None and "latency" in one.tag]
    return bool(bounds) and all(
        any(
            measured.metrics.get(one.tag, 0.0) > (one.most or 0.0)
            for measured in result.measured
            for name, one in bounds
            if name == measured.model
        )
        for result in last
    )


def _without_batch(settings: Settings) -> tuple[tuple[str, Setting], ...]:
    """Neighbours that differ in the largest batch alone have this in common."""
    return tuple((name, Setting(one.instances, None, None, one.max_step_tokens, one.other)) for name, one in settings)
