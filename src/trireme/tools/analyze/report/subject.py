"""What one report is about: the models of one search, their results in order, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trireme.tools.analyze.checkpoint import Findings
from trireme.tools.analyze.configuration.variant_config import (
    can_batch,
    engine_limits,
    instance_text,
    is_batching,
    is_language_model,
    variant_config,
)
from trireme.tools.analyze.metrics import METRICS
from trireme.tools.analyze.ranking import Ranked, Ranking, Settings
from trireme.tools.analyze.trial import Setting, Trial


@dataclass(frozen=True)
class Subject:
    """Made once the search is over; nothing of it changes."""

    loaded: tuple[str, ...]
    """The models that were asked."""
    tuned: tuple[str, ...]
    """The models whose configuration was changed."""
    findings: Findings
    ranking: Ranking
    shown_count: int = 3
    cpu_only: frozenset[str] = frozenset()
    seconds: float = 0.0
    search_mode: str = ""
    predictions: Sequence[tuple[Trial, Mapping[str, float]]] = field(default=())
    only: Settings | None = None
    """Nothing but this variant."""

    @property
    def title(self) -> str:
        return ",".join(self.loaded)

    @cached_property
    def ranked(self) -> list[Ranked]:
        """Every variant, the best first. Probes are shown with the others, but the best is one that was measured at
        length, unless nothing that was keeps the constraints and a probe does."""
        own = [
            result
            for result in self.findings.results
            if tuple(load.model for load in result.trial.loads) == self.loaded
            and {model for model, _ in result.trial.settings} == set(self.tuned)
            and self.only in (None, result.trial.settings)
        ]
        probes = {one.settings: one for one in self.ranking.by_variant(one for one in own if one.is_probe)}
        at_length = self.ranking.by_variant(one for one in own if not one.is_probe)
        rows = [_with(one, probes.pop(one.settings, None)) for one in at_length]
        rows = sorted([*rows, *probes.values()], key=lambda one: self.ranking.key(one.best), reverse=True)
        first = next((one for one in rows if not one.best.is_probe), None)
        if first is None or (rows[0].is_satisfying and not first.is_satisfying):
            return rows
        return [first, *(one for one in rows if one is not first)]

    def shown(self) -> list[Ranked]:
        """The best few, and the default wherever it stands."""
        best = [one for one in self.ranked if not _is_default(one.settings)][: self.shown_count]
        return [one for one in self.ranked if one in best or _is_default(one.settings)]

    @property
    def best(self) -> Ranked | None:
        return self.ranked[0] if self.ranked else None

    @property
    def default(self) -> Ranked | None:
        return next((one for one in self.ranked if _is_default(one.settings)), None)

    @cached_property
    def is_language_model(self) -> bool:
        return any(is_language_model(self.findings.configs.get(model, {})) for model in self.loaded)

    @cached_property
    def has_rates(self) -> bool:
        return any(load.request_rate is not None for one in self.ranked for load in one.best.trial.loads)

    def has(self, tag: str) -> bool:
        """Whether it was measured."""
        return any(tag in measured.metrics for one in self.ranked for measured in one.best.measured)

    @cached_property
    def unmeasured(self) -> list[tuple[str, str]]:
        """Models and metrics that are to keep a bound, and of which no result says anything."""
        seen = {
            (measured.model, tag)
            for one in self.ranked
            for result in one.results
            for measured in result.measured
            for tag in measured.metrics
        }
        bounded = dict.fromkeys((model, one.tag) for model, one in self.ranking.constraints())
        return [one for one in bounded if self.ranked and one not in seen]

    @property
    def is_met(self) -> bool:
        """Whether the best is known to keep all constraints; bounds of accelerators hold where none was seen."""
        is_unknown = any(not METRICS[tag].is_of_device for _, tag in self.unmeasured)
        return self.best is not None and self.best.is_satisfying and not is_unknown

    def name_of(self, settings: Settings) -> str:
        return ",".join(self.findings.variant_name(model, setting) for model, setting in settings)

    def config_of(self, model: str, setting: Setting) -> dict[str, Any]:
        own = self.findings.configs.get(model, {})
        return dict(own) if setting.is_default else variant_config(own, setting, model in self.cpu_only)

    def settings_texts(self, settings: Settings) -> list[str]:
        """The three cells that tell a configuration apart, those of several models joined."""
        rows = [_texts(self.config_of(model, setting)) for model, setting in settings]
        return [",".join(cells) for cells in zip(*rows, strict=True)]


def _with(one: Ranked, probed: Ranked | None) -> Ranked:
    """With its probes; one of them stands for the variant where it keeps the constraints and nothing longer does."""
    if probed is None:
        return one
    best = probed if probed.is_satisfying and not one.is_satisfying else one
    results = sorted((*one.results, *probed.results), key=lambda result: [load.level for load in result.trial.loads])
    return replace(best, results=tuple(results))


def _is_default(settings: Settings) -> bool:
    return all(setting.is_default for _, setting in settings)


def _texts(config: Mapping[str, Any]) -> list[str]:
    if is_language_model(config):
        limits = engine_limits(config)
        return [limits.get("max_sequences", "-"), limits.get("max_step_tokens", "-"), instance_text(config)]
    size = str(config.get("max_batch_size", 0)) if can_batch(config) else "0"
    return [size, "Enabled" if is_batching(config) else "Disabled", instance_text(config)]
