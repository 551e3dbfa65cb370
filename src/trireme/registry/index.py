"""The repository index: what is on disk and what was loaded from it, as one list."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trireme.registry.lifecycle import LOADING, READY, UNAVAILABLE, UNLOADED_REASON, UNLOADING, ModelRecord, VersionLife
from trireme.registry.repository.repositories import DUPLICATE_REASON, Repositories, Scan
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One version of a model, or a model without versions."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""
    problem: str = ""
    """Why the folder of a model that does not serve could not be read. The protocols tell it as the reason where there
    is no other; Triton's index has nothing of it."""


@dataclass(frozen=True, slots=True)
class AbsentModels:
    """What is said of models that are not loaded, where requests load them."""

    reasons: Mapping[str, str]
    """Why a model that was loaded, or was to be, is not; by name."""
    loading: frozenset[str]
    """Those that requests wait for."""
    otherwise: str
    """What is said of the rest."""

    def explained(self, entry: IndexEntry) -> IndexEntry:
        """The entry with its reason; as it is where the model is loaded or a load says more about it."""
        if entry.state == UNLOADING:
            return replace(entry, reason=self.reasons.get(entry.name, ""))
        if entry.state and not _is_unloaded(entry):
            return entry
        if entry.name in self.loading:
            return replace(entry, state=LOADING, reason="")
        unloaded = entry.reason or self.otherwise
        return replace(entry, state=UNAVAILABLE, reason=self.reasons.get(entry.name, unloaded))


def index_of(
    models: ServedModels, scan: Scan, ready_only: bool, absent: AbsentModels | None = None
) -> list[IndexEntry]:
    """Sorted by name and version."""
    entries = []
    for record in models.records.values():
        is_on_disk = record.id in scan.folders or record.id.name in scan.duplicates
        entries += [entry for entry in _entries(record) if is_on_disk or not _is_unloaded(entry)]
    if ready_only:
        entries = [entry for entry in entries if entry.state == READY]
    else:
        entries += [IndexEntry(name, "", UNAVAILABLE, DUPLICATE_REASON) for name in scan.duplicates]
        listed = {entry.name for entry in entries}
        entries += [IndexEntry(model_id.name) for model_id in scan.folders if model_id.name not in listed]
        if absent is not None:
            entries = [absent.explained(entry) for entry in entries]
        if models.unreadable:
            problems = {model_id.name: text for model_id, text in models.unreadable.items() if model_id in scan.folders}
            entries = [_with_problem(entry, problems) for entry in entries]
    return sorted(entries, key=lambda entry: (entry.name, int(entry.version or -1)))


def scan_or_nothing(repositories: Repositories) -> Scan:
    """What is on disk; blocks for as long as listing the repositories takes. Any thread may ask."""
    try:
        return repositories.scan()
    except OSError as error:
        log.error("failed to list model repository '%s': %s", error.filename, error.strerror)
        return Scan({}, frozenset())


def _entries(record: ModelRecord) -> list[IndexEntry]:
    return [IndexEntry(record.id.name, str(version), *_condition(life)) for version, life in record.versions.items()]


def _condition(life: VersionLife) -> tuple[str, str]:
    """State and reason: those of the last load, unless what was loaded has broken down since and heals itself."""
    backend = life.model.backend if life.model is not None and life.state == READY else None
    failure = getattr(backend, "failure", None)
    if not failure:
        return life.state, life.reason
    return READY if getattr(backend, "has_worker", True) else UNAVAILABLE, failure


def _with_problem(entry: IndexEntry, problems: Mapping[str, str]) -> IndexEntry:
    is_idle = not entry.state or entry.state == UNAVAILABLE
    if not is_idle or entry.name not in problems:
        return entry
    problem = problems[entry.name]
    return replace(entry, problem=problem, reason=entry.reason or problem)


def _is_unloaded(entry: IndexEntry) -> bool:
    return entry.state == UNAVAILABLE and entry.reason == UNLOADED_REASON
