"""What can be searched: the settings of each model that is changed, and the loads of each that is asked."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.tools.analyze.configuration.variant_config import can_batch, is_ensemble, is_language_model
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.options import ModelOptions, SearchOptions
from trireme.tools.analyze.trial import Load, Setting, Trial

Config = Mapping[str, Any]
_SHORTEST_STEP = 512
_LONGEST_STEP = 8192


@dataclass(frozen=True, slots=True)
class Axis:
    """One field of a setting, and its values in rising order."""

    field: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tunable:
    """A model whose configuration is changed."""

    name: str
    own: Config
    axes: tuple[Axis, ...] = ()
    listed: tuple[Setting, ...] = ()
    """In place of axes: the settings that the user has listed."""
    is_cpu_only: bool = False

    def settings(self) -> list[Setting]:
        """All of them, without the model's own; instances change last, as in the original's order."""
        if self.listed:
            return list(self.listed)
        if not self.axes:
            return []
        names = [axis.field for axis in self.axes]
        return [
            Setting().changed(dict(zip(names, values, strict=True)))
            for values in itertools.product(*(axis.values for axis in self.axes))
        ]

    def has(self, setting: Setting, batch_size: int) -> bool:
        """Whether it is one of them, the model's own included, or one whose largest batch is what a request has."""
        if self.listed or not self.axes or setting.is_default:
            return setting in (Setting(), *self.listed)
        values = {axis.field: axis.values for axis in self.axes}
        fields = ("instances", "max_batch_size", "max_sequences", "max_step_tokens")
        return not setting.other and all(
            value in values.get(field, (None,)) or (field == "max_batch_size" and value == batch_size)
            for field in fields
            for value in [getattr(setting, field)]
        )


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """How a model is asked: concurrencies, or rates."""

    model: str
    batch_sizes: tuple[int, ...]
    concurrencies: tuple[int, ...] = ()
    request_rates: tuple[float, ...] = ()

    def loads(self, batch_size: int) -> list[Load]:
        """From the lightest to the heaviest."""
        if self.request_rates:
            return [Load(self.model, 1, batch_size, rate) for rate in self.request_rates]
        return [Load(self.model, concurrency, batch_size) for concurrency in self.concurrencies]

    def nearest(self, concurrency: float, batch_size: int) -> Load:
        """The load whose concurrency is the largest that is not above this."""
        if self.request_rates:
            return Load(self.model, 1, batch_size, self.request_rates[-1])
        fitting = [value for value in self.concurrencies if value <= concurrency]
        return Load(self.model, max(fitting, default=self.concurrencies[0]), batch_size)


@dataclass(frozen=True, slots=True)
class Space:
    """All that one search may measure."""

    tunables: tuple[Tunable, ...]
    choices: tuple[LoadChoice, ...]

    @property
    def default(self) -> tuple[tuple[str, Setting], ...]:
        """Every model as it is."""
        return tuple((tunable.name, Setting()) for tunable in self.tunables)

    def combinations(self) -> Iterator[tuple[tuple[str, Setting], ...]]:
        """Settings of all models, without the default."""
        lists = [[(tunable.name, setting) for setting in tunable.settings()] for tunable in self.tunables]
        lists = [one for one in lists if one]
        if lists:
            yield from itertools.product(*lists)

    def batch_sizes(self) -> tuple[int, ...]:
        """Of requests; those of the first model stand for all."""
        return self.choices[0].batch_sizes

    def trials(self, settings: tuple[tuple[str, Setting], ...], batch_size: int) -> list[Trial]:
        """Under every load, the lightest first; several models rise together."""
        series = [choice.loads(batch_size) for choice in self.choices]
        longest = max(len(loads) for loads in series)
        return [
            Trial(settings, tuple(loads[min(number, len(loads) - 1)] for loads in series)) for number in range(longest)
        ]

    def has(self, trial: Trial) -> bool:
        """Whether the search may measure it."""
        settings, loads = dict(trial.settings), {load.model: load for load in trial.loads}
        if settings.keys() != {one.name for one in self.tunables} or loads.keys() != {
            one.model for one in self.choices
        }:
            return False
        return all(
            load.batch_size in self.batch_sizes() and load in choice.loads(load.batch_size)
            for choice in self.choices
            for load in [loads[choice.model]]
        ) and all(one.has(settings[one.name], trial.loads[0].batch_size) for one in self.tunables)

    def size(self) -> int:
        """How many trials there are."""
        settings = 1 + sum(1 for _ in self.combinations())
        return settings * len(self.batch_sizes()) * max(len(choice.loads(1)) for choice in self.choices)


def doubled(least: int, most: int) -> tuple[int, ...]:
    """Doubled from the least as far as the most allows."""
    found = []
    value = max(1, least)
    while value <= most:
        found.append(value)
        value *= 2
    return tuple(found)


def tunable(
    name: str,
    own: Config,
    options: SearchOptions,
    given: Mapping[str, Any] | None,
    is_cpu_only: bool,
    least_batch: int = 0,
) -> Tunable:
    """A model and what of it is searched; raises InputError. `least_batch` is the largest batch of the ensembles it is
    a step of, which cannot be loaded with a smaller one."""
    if given is not None:
        return Tunable(name, own, listed=tuple(listed_settings(given)), is_cpu_only=is_cpu_only)
    if options.is_disabled or is_ensemble(own):
        return Tunable(name, own, is_cpu_only=is_cpu_only)
    if is_language_model(own):
        axes = (
            Axis("max_step_tokens", doubled(_SHORTEST_STEP, _LONGEST_STEP)[::2]),
            Axis("max_sequences", doubled(options.min_sequences, options.max_sequences)),
        )
        return Tunable(name, own, axes, is_cpu_only=is_cpu_only)
    found = [Axis("instances", tuple(range(options.min_instances, options.max_instances + 1)))]
    if can_batch(own):
        sizes = doubled(max(options.min_batch_size, least_batch), options.max_batch_size)
        if sizes or not least_batch:
            found.append(Axis("max_batch_size", sizes))
    return Tunable(name, own, tuple(found), is_cpu_only=is_cpu_only)


def load_choice(model: ModelOptions, options: SearchOptions) -> LoadChoice:
    """The loads of a model: as listed, or doubled from the least to the most."""
    if model.request_rates:
        return LoadChoice(model.name, model.batch_sizes, request_rates=model.request_rates)
    if options.by_request_rate and not model.concurrencies:
        rates = doubled(options.min_request_rate, options.max_request_rate)
        return LoadChoice(model.name, model.batch_sizes, request_rates=tuple(map(float, rates)))
    concurrencies = model.concurrencies
    if not concurrencies:
        concurrencies = (1,) if options.is_disabled else doubled(options.min_concurrency, options.max_concurrency)
    return LoadChoice(model.name, model.batch_sizes, concurrencies)


def listed_settings(given: Mapping[str, Any]) -> Iterator[Setting]:
    """The product of all values that are listed; raises InputError."""
    for fields in _products(given):
        instances = max_batch_size = None
        if "max_batch_size" in fields:
            max_batch_size = _whole(fields.pop("max_batch_size"), "max_batch_size")
        groups = fields.get("instance_group")
        if isinstance(groups, list) and len(groups) == 1 and set(groups[0]) <= {"count"}:
            instances = _whole(groups[0].get("count", 1), "instance_group.count")
            del fields["instance_group"]
        yield Setting(instances, max_batch_size, other=json.dumps(fields, sort_keys=True) if fields else "")


def _products(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = list(value)
    for values in itertools.product(*(list(_choices(value[name])) for name in names)):
        yield dict(zip(names, values, strict=True))


def _choices(value: Any) -> Iterator[Any]:
    """A list is a choice of values; a list of objects is one value, with choices inside it."""
    if isinstance(value, Mapping):
        yield from _products(value)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        yield from (list(items) for items in itertools.product(*(list(_products(item)) for item in value)))
    elif isinstance(value, list):
        for item in value:
            yield from _choices(item) if isinstance(item, list) and _has_objects(item) else iter([item])
    else:
        yield value


def _has_objects(items: Sequence[Any]) -> bool:
    return any(isinstance(item, Mapping) for item in items)


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"model_config_parameters: {name} is a whole number, not {value!r}")
    return value
