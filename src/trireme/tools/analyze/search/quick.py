"""Hill climbing over the values of all settings at once, then a sweep of the loads of the best."""

from __future__ import annotations

from trireme.tools.analyze.configuration.space import LoadChoice, Space
from trireme.tools.analyze.configuration.variant_config import instance_count
from trireme.tools.analyze.ranking import Ranking, Settings
from trireme.tools.analyze.search.brute import sweep
from trireme.tools.analyze.search.port import Measure
from trireme.tools.analyze.trial import Load, Result, Setting, Trial

_LARGEST_STEP = 2
Point = tuple[int, ...]
"""An index for every axis of every model."""


def quick(space: Space, measure: Measure, ranking: Ranking, top: int) -> None:
    """Climbs for each batch size of requests; the best few and the default are then measured under every load."""
    for batch_size in space.batch_sizes():
        climb = _HillClimb(space, measure, ranking, batch_size)
        measure(Trial(space.default, climb.loads(space.default)))
        results = climb.run()
        best = [one.settings for one in ranking.by_variant(results)[:top]]
        for settings in [space.default, *best]:
            sweep(space, settings, batch_size, measure, ranking)


class _HillClimb:
    """From the smallest values to where no neighbour is better."""

    def __init__(self, space: Space, measure: Measure, ranking: Ranking, batch_size: int) -> None:
        self._space = space
        self._measure = measure
        self._ranking = ranking
        self._batch_size = batch_size
        self._axes = [
            (tunable.name, axis.field, axis.values)
            for tunable in space.tunables
            for axis in tunable.axes
            if axis.values
        ]
        self._moves = [(number,) for number in range(len(self._axes))] + self._joint_moves()
        self._found: dict[Point, Result | None] = {}

    def run(self) -> list[Result]:
        """What was measured on the way."""
        listed = [settings for settings in self._space.combinations() if not self._axes]
        if not self._axes:
            results = [self._measure(Trial(settings, self.loads(settings))) for settings in listed]
            return [result for result in results if result is not None]
        here: Point = tuple(0 for _ in self._axes)
        self._visit(here)
        step = _LARGEST_STEP
        while step:
            best = max(self._neighbours(here, step), key=self._key, default=here)
            if self._key(best) > self._key(here):
                here = best
            else:
                step //= 2
        return [result for result in self._found.values() if result is not None]

    def _neighbours(self, here: Point, step: int) -> list[Point]:
        found = []
        for numbers in self._moves:
            for change in (step, -step):
                point = self._moved(here, numbers, change)
                if point != here:
                    self._visit(point)
                    found.append(point)
        return found

    def _joint_moves(self) -> list[tuple[int, ...]]:
        """The axes that all models under one load have: of steps that are equally narrow, to widen one gains nothing,
        and to widen them all does."""
        if len(self._space.choices) > 1:
            return []
        by_field: dict[str, list[int]] = {}
        for number, (_, field, _) in enumerate(self._axes):
            by_field.setdefault(field, []).append(number)
        return [tuple(numbers) for numbers in by_field.values() if len(numbers) > 1]

    def _moved(self, here: Point, numbers: tuple[int, ...], change: int) -> Point:
        moved = list(here)
        for number in numbers:
            moved[number] = min(max(here[number] + change, 0), len(self._axes[number][2]) - 1)
        return tuple(moved)

    def _visit(self, point: Point) -> None:
        if point not in self._found:
            settings = self._settings(point)
            self._found[point] = self._measure(Trial(settings, self.loads(settings)))

    def _key(self, point: Point) -> tuple[bool, float]:
        result = self._found[point]
        return (False, float("-inf")) if result is None else self._ranking.key(result)

    def _settings(self, point: Point) -> Settings:
        changed = dict(self._space.default)
        for (model, field, values), index in zip(self._axes, point, strict=True):
            changed[model] = changed[model].changed({field: values[index]})
        return tuple(changed.items())

    def loads(self, settings: Settings) -> tuple[Load, ...]:
        """So many clients that every instance can have a batch at work and one that waits."""
        by_model = dict(settings)
        room = [self._room(tunable.name, by_model[tunable.name]) for tunable in self._space.tunables]
        return tuple(self._load(choice, by_model, min(room, default=1)) for choice in self._space.choices)

    def _load(self, choice: LoadChoice, settings: dict[str, Setting], narrowest: int) -> Load:
        """An ensemble has as many clients as its narrowest step has room for."""
        own = self._room(choice.model, settings[choice.model]) if choice.model in settings else narrowest
        return choice.nearest(max(1, own // self._batch_size), self._batch_size)

    def _room(self, model: str, setting: Setting) -> int:
        own = next(tunable.own for tunable in self._space.tunables if tunable.name == model)
        if setting.max_sequences is not None:
            return setting.max_sequences
        size = setting.max_batch_size if setting.max_batch_size is not None else int(own.get("max_batch_size", 0))
        instances = instance_count(own) if setting.instances is None else setting.instances
        return 2 * instances * max(1, size)
