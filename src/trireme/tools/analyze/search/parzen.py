"""The search of the mode `optuna`: a tree-structured Parzen estimator, as that library has it by default.

Own code in place of the library: the space is a few hundred points of a handful of rising values, for which the
estimator is a page of arithmetic and the library brings a database layer along.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from trireme.tools.analyze.configuration.space import Space
from trireme.tools.analyze.options import SearchOptions
from trireme.tools.analyze.ranking import Ranking, Settings
from trireme.tools.analyze.search.brute import sweep
from trireme.tools.analyze.search.port import Measure
from trireme.tools.analyze.trial import Result, Setting, Trial

_RANDOM_TRIALS = 10
_GOOD_SHARE = 0.25
_DRAWS = 24
_TRIES = 50
Point = tuple[int, ...]


def parzen(space: Space, measure: Measure, ranking: Ranking, options: SearchOptions, top: int) -> None:
    """The default is swept first; settings and load are then drawn together, and the best few swept at the end."""
    for batch_size in space.batch_sizes():
        sweep(space, space.default, batch_size, measure, ranking)
        drawn = _Draws(space, batch_size, random.Random(options.seed))
        search = _Search(drawn, measure, ranking, options)
        results = search.run()
        best = [one.settings for one in ranking.by_variant(results)[:top]]
        for settings in best:
            sweep(space, settings, batch_size, measure, ranking)


def trial_count(size: int, options: SearchOptions) -> tuple[int, int]:
    """The least and the most trials for a space of this size."""
    least = max(options.min_trials, math.ceil(size * options.min_share / 100))
    most = min(options.max_trials, max(options.min_trials, math.ceil(size * options.max_share / 100)))
    return min(least, most, size), min(most, size)


class _Draws:
    """Points of the space as indexes."""

    def __init__(self, space: Space, batch_size: int, chance: random.Random) -> None:
        self.chance = chance
        self._space = space
        self._batch_size = batch_size
        self._fields: list[tuple[str, str]] = []
        self.lengths: list[int] = []
        for tunable in space.tunables:
            if tunable.listed:
                self._fields.append((tunable.name, ""))
                self.lengths.append(len(tunable.listed))
            for axis in tunable.axes:
                self._fields.append((tunable.name, axis.field))
                self.lengths.append(len(axis.values))
        self.lengths.append(max(len(choice.loads(batch_size)) for choice in space.choices))

    @property
    def size(self) -> int:
        return math.prod(self.lengths)

    def random(self) -> Point:
        return tuple(self.chance.randrange(length) for length in self.lengths)

    def trial(self, point: Point) -> Trial:
        settings = self._settings(point)
        return self._space.trials(settings, self._batch_size)[point[-1]]

    def _settings(self, point: Point) -> Settings:
        changed: dict[str, Setting] = dict(self._space.default)
        tunables = {tunable.name: tunable for tunable in self._space.tunables}
        for (model, field), index in zip(self._fields, point[:-1], strict=True):
            if not field:
                changed[model] = tunables[model].listed[index]
                continue
            values = next(axis.values for axis in tunables[model].axes if axis.field == field)
            changed[model] = changed[model].changed({field: values[index]})
        return tuple(changed.items())


@dataclass(frozen=True, slots=True)
class _Seen:
    point: Point
    key: tuple[bool, float]


class _Search:
    def __init__(self, draws: _Draws, measure: Measure, ranking: Ranking, options: SearchOptions) -> None:
        self._draws = draws
        self._measure = measure
        self._ranking = ranking
        self._options = options
        self._seen: list[_Seen] = []

    def run(self) -> list[Result]:
        least, most = trial_count(self._draws.size, self._options)
        results: list[Result] = []
        best, since_best = (False, float("-inf")), 0
        while len(self._seen) < most:
            point = self._next()
            if point is None:
                break
            result = self._measure(self._draws.trial(point))
            key = (False, float("-inf")) if result is None else self._ranking.key(result)
            if result is not None:
                results.append(result)
            self._seen.append(_Seen(point, key))
            since_best = 0 if key > best else since_best + 1
            best = max(best, key)
            if len(self._seen) >= least and since_best >= self._options.early_exit_trials:
                break
        return results

    def _next(self) -> Point | None:
        """A point that was not measured; by chance at first, then where good points are dense and others are not."""
        measured = {one.point for one in self._seen}
        if len(self._seen) < _RANDOM_TRIALS:
            return self._new(self._draws.random, measured)
        ordered = sorted(self._seen, key=lambda one: one.key, reverse=True)
        count = max(1, math.ceil(len(ordered) * _GOOD_SHARE))
        good = [self._density([one.point[axis] for one in ordered[:count]], axis) for axis in self._axes]
        other = [self._density([one.point[axis] for one in ordered[count:]], axis) for axis in self._axes]

        def draw() -> Point:
            return tuple(self._draws.chance.choices(range(len(weights)), weights)[0] for weights in good)

        points = [point for _ in range(_DRAWS) if (point := draw()) not in measured]
        if not points:
            return self._new(self._draws.random, measured)
        return max(
            points,
            key=lambda point: sum(math.log(good[axis][point[axis]] / other[axis][point[axis]]) for axis in self._axes),
        )

    @property
    def _axes(self) -> range:
        return range(len(self._draws.lengths))

    def _density(self, indexes: list[int], axis: int) -> list[float]:
        """A kernel over neighbouring values at each index, on a floor of one observation spread over all."""
        length = self._draws.lengths[axis]
        width = max(1.0, length / 6)
        weights = [1.0 / length] * length
        for index in indexes:
            kernel = [math.exp(-0.5 * ((value - index) / width) ** 2) for value in range(length)]
            weights = [weight + part / sum(kernel) for weight, part in zip(weights, kernel, strict=True)]
        return [weight / sum(weights) for weight in weights]

    def _new(self, draw: Callable[[], Point], measured: set[Point]) -> Point | None:
        for _ in range(_TRIES):
            point = draw()
            if point not in measured:
                return point
        return None
