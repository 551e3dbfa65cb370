"""From options and what the server says of its models to the searches that are to be made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trireme.tools.analyze.configuration.space import Space, Tunable, load_choice, tunable
from trireme.tools.analyze.configuration.variant_config import is_ensemble, is_language_model, steps_of
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.options import AnalyzeOptions, ModelOptions
from trireme.tools.analyze.search.fit.search import can_fit

ConfigOf = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Search:
    """One search: a space, and the way through it."""

    space: Space
    models: tuple[ModelOptions, ...]
    """Those that are asked."""
    mode: str
    cpu_only: tuple[str, ...] = ()

    @property
    def tuned(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.space.tunables)

    @property
    def title(self) -> str:
        return ",".join(model.name for model in self.models)


def plan_searches(options: AnalyzeOptions, config_of: ConfigOf) -> list[Search]:
    """One for each model, or one for all together; raises InputError."""
    groups = [options.models] if options.search.is_together else [(model,) for model in options.models]
    return [_search(options, group, config_of) for group in groups]


def _search(options: AnalyzeOptions, models: tuple[ModelOptions, ...], config_of: ConfigOf) -> Search:
    tunables: list[Tunable] = []
    is_fixed = options.place.is_reload_disabled
    allowed = replace(options.search, is_disabled=options.search.is_disabled or is_fixed)
    cpu_only = [model.name for model in models if model.is_cpu_only]
    cpu_only += list(options.cpu_only_called)
    for model in models:
        least = _tuned(model.name, config_of, (), 0)
        for name in dict.fromkeys([*least, *options.called_models]):
            given = model.config_parameters if name == model.name and not is_fixed else None
            if all(one.name != name for one in tunables):
                tunables.append(tunable(name, config_of(name), allowed, given, name in cpu_only, least.get(name, 0)))
    choices = tuple(load_choice(model, options.search) for model in models)
    if options.search.is_together and any(is_language_model(config_of(model.name)) for model in models):
        raise InputError("language models are tuned one at a time, not together with others")
    space = Space(tuple(tunables), choices)
    return Search(space, models, _mode(options, space), tuple(cpu_only))


def _tuned(model: str, config_of: ConfigOf, above: tuple[str, ...], least: int) -> dict[str, int]:
    """The model itself, or the steps of an ensemble, those of its ensembles included, each with the largest batch of
    the ensembles above it."""
    config = config_of(model)
    if not is_ensemble(config):
        return {model: least}
    least = max(least, int(config.get("max_batch_size", 0)))
    found: dict[str, int] = {}
    for step in steps_of(config):
        if step not in above:
            for name, size in _tuned(step, config_of, (*above, model), least).items():
                found[name] = max(size, found.get(name, 0))
    return found


def _mode(options: AnalyzeOptions, space: Space) -> str:
    """What was asked for; else the fitted model where it can be had."""
    wanted = options.search.mode
    is_listed = any(one.listed for one in space.tunables)
    if wanted == "fit" and not can_fit(space):
        reason = "listed configurations" if is_listed else "ensembles, calling models, language models and rates"
        raise InputError(
            f"--run-config-search-mode fit is for a single model whose instances and batches are searched; {reason} "
            "are searched by brute, quick and optuna"
        )
    if wanted is not None:
        return wanted
    if options.place.is_reload_disabled or options.search.is_disabled or is_listed:
        return "brute"
    return "fit" if can_fit(space) and space.tunables[0].axes else "quick"
