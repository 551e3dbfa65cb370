"""Devices that only one model can have at a time: whoever was used the longest ago gives its own to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from trireme.registry import dependencies
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.loading import ModelLoader
from trireme.registry.on_demand_eviction import Eviction
from trireme.registry.served_models import ServedModels

DEVICE = "device"
_LOOK_S = 0.02


class DeviceRoom:
    """Evicts models that hold what another one needs, as the memory budget does for memory."""

    def __init__(self, timeout_s: float, models: ServedModels, loader: ModelLoader, eviction: Eviction) -> None:
        self._timeout_s = timeout_s
        self._models = models
        self._loader = loader
        self._eviction = eviction

    async def make_room(self, name: str, choices: Sequence[Collection[str]], waited_s: float) -> bool:
        """Implements `devices.ownership.MakeRoom`."""
        kept = self._related(self._eviction.needed_with(name))
        possible = [records for choice in choices if (records := self._leaving(choice, kept)) is not None]
        idle = [records for records in possible if records and all(map(self._may_go_now, records))]
        if idle:
            for record in min(idle, key=lambda records: max(map(self._eviction.last_used_ns, records))):
                if record.ready_models:
                    await self._eviction.evict(record, DEVICE, f"device needed by '{name}'")
            return True
        if not possible or waited_s >= self._timeout_s:
            return False
        await asyncio.sleep(_LOOK_S)
        return True

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
