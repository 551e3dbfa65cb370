"""The regular look at models that are loaded on demand: idle ones, grown ones, and those whose folder has gone."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from trireme.registry.lifecycle import ModelRecord
from trireme.registry.on_demand.budget import MemoryBudget
from trireme.registry.on_demand.eviction import Eviction
from trireme.registry.options import OnDemandOptions
from trireme.registry.repository.repositories import may_be_folder
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)

IDLE = "idle"
REMOVED = "removed"
_SECOND_NS = 1_000_000_000


async def sweep(options: OnDemandOptions, models: ServedModels, eviction: Eviction, budget: MemoryBudget) -> None:
    """Looks again and again until it is cancelled; a look that fails is logged and followed by the next."""
    while True:
        await asyncio.sleep(options.effective_sweep_s)
        try:
            eviction.note_use()
            await _evict_removed(models, eviction)
            if options.ttl_s > 0:
                await _evict_idle(options.ttl_s, eviction)
            await budget.trim()
            eviction.changes.notify()  # nobody says when a process has become smaller
        except Exception:
            log.exception("on demand: the regular look at the models failed")


async def _evict_idle(ttl_s: float, eviction: Eviction) -> None:
    now_ns = time.monotonic_ns()
    for record in eviction.candidates():
        # Asked again for each: while one goes, requests come for another.
        is_idle = record.ready_models and not eviction.is_busy(record)
        if is_idle and now_ns - eviction.last_used_ns(record) >= ttl_s * _SECOND_NS:
            await eviction.evict(record, IDLE, f"idle for {ttl_s:g} seconds")


async def _evict_removed(models: ServedModels, eviction: Eviction) -> None:
    loaded = [record for record in models.records.values() if record.ready_models and not record.is_temporary]
    for record in await asyncio.to_thread(_without_folder, loaded):
        if record.ready_models:
            await eviction.evict(record, REMOVED, "removed from the repository")


def _without_folder(records: list[ModelRecord]) -> list[ModelRecord]:
    gone = []
    for record in records:
        folder = record.loaded.folder if record.loaded is not None else None
        # A repository that is away as a whole is no reason to end its models.
        if folder is not None and not may_be_folder(folder) and os.path.isdir(folder.parent):
            gone.append(record)
    return gone
