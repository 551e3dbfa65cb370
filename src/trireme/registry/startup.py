"""The first load: all models, or those asked for, and the report that the start-up table is made of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from trireme.core.errors import ServingError
from trireme.registry.lifecycle import READY, UNLOADED_REASON, ModelRecord
from trireme.registry.loading.model_loader import ModelLoader
from trireme.registry.on_demand.config import pinned_names
from trireme.registry.options import RegistryOptions
from trireme.registry.repository.repositories import Repositories
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)

Load = Callable[[str], Coroutine[Any, Any, None]]
"""Loads one model by name; raises ServingError."""


@dataclass(frozen=True, slots=True)
class StartupReport:
    """What became of the models at the start."""

    rows: tuple[tuple[str, str, str], ...]
    """Model, version and status, sorted; models whose folder could not be read are not among them."""
    failures: tuple[str, ...]
    """The names of all models that are not completely there."""
    causes: Mapping[str, str]
    """Why, in a line, by name; of those whose folder could be read."""

    @property
    def is_ok(self) -> bool:
        return not self.failures


async def load_startup_models(
    options: RegistryOptions, models: ServedModels, repositories: Repositories, loader: ModelLoader, load_named: Load
) -> StartupReport:
    """Loads what the options ask for. One model's failure is reported and keeps no other from loading; a repository
    that is no folder raises ServingError."""
    repositories.check()
    if options.loads_every_model:
        failures = await _load_every_model(repositories, loader)
    elif options.is_on_demand:
        pinned = await asyncio.to_thread(pinned_names, options, repositories)
        failures = await _load_named_models(pinned, load_named)
    else:
        failures = await _load_named_models(options.startup_models, load_named)
    for model_id, record in models.records.items():
        if record.is_wanted and not _is_serving(record):
            failures.add(model_id.name)
    failed = [record for record in models.records.values() if record.id.name in failures]
    causes = {record.id.name: cause for record in failed if (cause := _cause(record))}
    rows = (row for record in models.records.values() if record.is_wanted for row in _rows(record))
    return StartupReport(tuple(row for _, row in sorted(rows)), tuple(sorted(failures)), causes)


async def _load_every_model(repositories: Repositories, loader: ModelLoader) -> set[str]:
    scan = await asyncio.to_thread(repositories.scan)
    for name in sorted(scan.duplicates):
        log.error("failed to poll model '%s': not unique across all model repositories", name)
    outcome, unreadable = await loader.load_all(dict(sorted(scan.folders.items())))
    failed = {model_id.name for model_id, error in outcome.items() if error is not None}
    return failed | scan.duplicates | {model_id.name for model_id in unreadable}


async def _load_named_models(names: tuple[str, ...], load: Load) -> set[str]:
    async def is_loaded(name: str) -> bool:
        try:
            await load(name)
        except ServingError:
            return False
        return True

    unique = list(dict.fromkeys(names))
    results = await asyncio.gather(*(is_loaded(name) for name in unique))
    return {name for name, is_good in zip(unique, results, strict=True) if not is_good}


def _is_serving(record: ModelRecord) -> bool:
    return bool(record.versions) and all(life.state == READY for life in record.versions.values())


def _cause(record: ModelRecord) -> str:
    """The failure of its last version that has one, and did not go because of another's; else the model's own."""
    failures = [life.failure for life in record.versions.values() if life.failure not in ("", UNLOADED_REASON)]
    text = failures[-1] if failures else record.failure
    return next(iter(text.strip().splitlines()), "")


def _rows(record: ModelRecord) -> list[tuple[tuple[str, int], tuple[str, str, str]]]:
    """The record's lines of the table, each behind the key it is sorted by."""
    name = str(record.id)
    if not record.versions:
        return [((name, -1), (name, "-", "Not loaded: No model version was found"))]
    return [
        ((name, version), (name, str(version), f"{life.state}: {life.reason}" if life.reason else life.state))
        for version, life in record.versions.items()
    ]
