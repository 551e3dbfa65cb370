"""The first load: all models, or those asked for, and the report that the start-up table is made of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trireme.config.nearest import meant
from trireme.core.errors import ServingError
from trireme.core.load_failure import LoadFailure
from trireme.observe.logs import in_report
from trireme.registry.index import scan_or_nothing
from trireme.registry.lifecycle import READY, ModelRecord
from trireme.registry.loading.model_loader import ModelLoader, Outcome
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
    failures: tuple[LoadFailure, ...]
    """All models that are not completely there, sorted."""

    @property
    def is_ok(self) -> bool:
        return not self.failures


async def load_startup_models(
    options: RegistryOptions, models: ServedModels, repositories: Repositories, loader: ModelLoader, load_named: Load
) -> StartupReport:
    """Loads what the options ask for. One model's failure is reported and keeps no other from loading; a repository
    that is no folder raises ServingError."""
    await asyncio.to_thread(repositories.check)
    if options.loads_every_model:
        reasons = await _load_every_model(repositories, loader)
    elif options.is_on_demand:
        pinned = await asyncio.to_thread(pinned_names, options, repositories)
        reasons = await _load_named_models(pinned, load_named)
    else:
        reasons = await _load_named_models(options.startup_models, load_named)
    for model_id, record in models.records.items():
        if record.is_wanted and not _is_serving(record):
            reasons.setdefault(model_id.name, "it is not ready")
        if model_id.name in reasons:
            reasons[model_id.name] = record.reason or reasons[model_id.name]
    reasons |= {name: problem for name in reasons if (problem := models.problem_of(name))}
    folders = await asyncio.to_thread(_folders, repositories, reasons)
    if absent := [name for name in reasons if name not in folders]:
        missing = await asyncio.to_thread(_absent_reasons, repositories, absent)
        for name, reason in missing.items():
            log.error("failed to load '%s': %s", name, reason, extra=in_report(name))
        reasons |= missing
    failures = tuple(LoadFailure(name, folders.get(name), reasons[name]) for name in sorted(reasons))
    rows = (row for record in models.records.values() if record.is_wanted for row in _rows(record))
    return StartupReport(tuple(row for _, row in sorted(rows)), failures)


async def _load_every_model(repositories: Repositories, loader: ModelLoader) -> dict[str, str]:
    """Why models failed, by name."""
    scan = await asyncio.to_thread(repositories.scan)
    for name in sorted(scan.duplicates):
        log.error("failed to poll model '%s': not unique across all model repositories", name, extra=in_report(name))
    outcome: Outcome = {}
    await loader.load_all(dict(sorted(scan.folders.items())), outcome.update)
    reasons = dict.fromkeys(scan.duplicates, "it is in two or more of the repositories, and none of them is loaded")
    return reasons | {model_id.name: error.message for model_id, error in outcome.items() if error is not None}


async def _load_named_models(names: tuple[str, ...], load: Load) -> dict[str, str]:
    reasons: dict[str, str] = {}

    async def note_failure(name: str) -> None:
        try:
            await load(name)
        except ServingError as error:
            reasons[name] = error.message

    await asyncio.gather(*(note_failure(name) for name in dict.fromkeys(names)))
    return reasons


def _folders(repositories: Repositories, names: Iterable[str]) -> dict[str, Path]:
    """The folder of each name that exactly one goes by."""
    found = {name: list(repositories.locate(name).folders.values()) for name in names}
    return {name: folders[0] for name, folders in found.items() if len(folders) == 1}


def _absent_reasons(repositories: Repositories, names: Iterable[str]) -> dict[str, str]:
    """Of those among the names that no folder goes by, with the folder that was probably meant."""
    scan = scan_or_nothing(repositories)
    known = {model_id.name for model_id in scan.folders} | scan.duplicates
    return {
        name: f"there is no folder of this name in the model repository{meant(name, sorted(known))}"
        for name in names
        if name not in known
    }


def _is_serving(record: ModelRecord) -> bool:
    return bool(record.versions) and all(life.state == READY for life in record.versions.values())


def _rows(record: ModelRecord) -> list[tuple[tuple[str, int], tuple[str, str, str]]]:
    """The record's lines of the table, each behind the key it is sorted by."""
    name = str(record.id)
    if not record.versions:
        return [((name, -1), (name, "-", "Not loaded: No model version was found"))]
    return [
        ((name, version), (name, str(version), f"{life.state}: {life.reason}" if life.reason else life.state))
        for version, life in record.versions.items()
    ]
