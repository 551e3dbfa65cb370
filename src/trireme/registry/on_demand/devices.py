"""Devices that only one model can have at a time: whoever was used the longest ago gives its own to the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from trireme.registry.lifecycle import ModelRecord
from trireme.registry.loading import dependencies
from trireme.registry.loading.model_loader import ModelLoader
from trireme.registry.on_demand.eviction import Eviction, OngoingLoad
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)

DEVICE = "device"
_LOOK_S = 0.02


class DeviceRoom:
    """Evicts models that hold what another one needs, as the memory budget does for memory."""

    def __init__(self, timeout_s: float, models: ServedModels, loader: ModelLoader, eviction: Eviction) -> None:
        self._timeout_s = timeout_s
        self._models = models
        self._loader = loader
        self._eviction = eviction
        self._blocked: list[tuple[str, set[str]]] = []  # who waits for a device, and for which models' devices
        self._gave_way: dict[str, OngoingLoad] = {}  # whose load ends without its device, and the one that gets it

    async def evict_for(self, name: str, choices: Sequence[Collection[str]], waited_s: float) -> bool:
        """Implements `devices.ownership.EvictFor`."""
        kept = self._related(self._eviction.needed_with(name))
        possible = [records for choice in choices if (records := self._leaving(choice, kept)) is not None]
        idle = [records for records in possible if records and all(map(self._may_go_now, records))]
        if idle:
            for record in min(idle, key=lambda records: max(map(self._eviction.last_used_ns, records))):
                if record.ready_models:
                    await self._eviction.evict(record, DEVICE, f"device needed by '{name}'")
            return True
        if not possible or waited_s >= self._timeout_s or self._gives_way(name):
            return False
        waiting = (name, {record.id.name for records in possible for record in records})
        self._blocked.append(waiting)
        try:
            await asyncio.sleep(_LOOK_S)
        finally:
            self._blocked.remove(waiting)
        return True

    async def gave_way(self, names: Collection[str]) -> bool:
        """Whether the failed load of these models gave way to others; returns when those are over."""
        earlier = [self._gave_way.pop(name) for name in names if name in self._gave_way]
        for load in earlier:
            await load.is_over.wait()
        return bool(earlier)

    def _gives_way(self, name: str) -> bool:
        """Whether an earlier load waits for a device that belongs to the load of this model: each would keep what the
        other needs until the time of both is over."""
        loads = self._eviction.loads
        own = next((index for index, load in enumerate(loads) if name in load.names), 0)
        for load in loads[:own]:
            if any(blocked in load.names and holders & loads[own].names for blocked, holders in self._blocked):
                log.info("on demand: the load of '%s' gives its devices to an earlier one, and begins anew then", name)
                self._gave_way[name] = load
                return True
        return False

    def _leaving(self, names: Collection[str], kept: set[str]) -> list[ModelRecord] | None:
        """The models of these names; None where one of them is to stay, whatever happens."""
        records = [record for name in names for record in self._models.named(name)]
        for record in records:
            members = {member.id.name for member in self._eviction.group(record)}
            if self._eviction.is_pinned(record) or self._related(members) & kept:
                return None
        return records

    def _may_go_now(self, record: ModelRecord) -> bool:
        # An operation on the model would have to be waited for, and might wait for us.
        members = (member.id.name for member in self._eviction.group(record))
        return self._eviction.may_go(record) and not any(map(self._loader.is_at_work_on, members))

    def _related(self, names: Collection[str]) -> set[str]:
        return set[str]().union(*(dependencies.related_names(self._models, name) for name in names))
