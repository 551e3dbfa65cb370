"""Who owns which exclusive device: a Gaudi belongs to one process, a NeuronCore too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.devices.device import DeviceKind
from trireme.devices.environment import Assignment, gpus_to_see, ranges
from trireme.devices.inventory import Inventory

ENDING_POLL_S = 0.05
_NOUNS = {"hpu": "Gaudi accelerators (HPUs)", "neuron": "NeuronCores"}


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one instance is to run on."""

    kind: DeviceKind = "cpu"
    index: int = 0
    """The GPU, where it is one."""
    units: tuple[int, ...] | None = None
    """Exactly these modules or cores; None: any that are free."""
    count: int = 1
    """How many of them, in a row, where any will do."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One instance of one version of a model; a reload is another owner, though its names are the same."""

    model: str
    version: int
    instance: str
    copy: int
    """Tells the copies of a version apart that live at the same time while it is reloaded."""


EvictFor = Callable[[str, Sequence[frozenset[str]], float], Awaitable[bool]]
"""Told a model that needs a device, sets of models each of which has what it needs, and for how many seconds it has
waited: ends the models of one set, or lets time pass until one may end, and returns True for another look; False where
every set has a model that stays."""


async def nobody_leaves(_model: str, _choices: Sequence[frozenset[str]], _waited_s: float) -> bool:
    """The `EvictFor` of a server whose models go only when they are told to."""
    return False


class DeviceOwnership:
    """The book of who has what; used on the event loop's thread alone. Shared devices need no entry."""

    def __init__(
        self,
        inventory: Inventory,
        is_ending: Callable[[str], bool] = lambda _model: False,
        end_old_copy: Callable[[str], bool] = lambda _model: False,
        evict_for: EvictFor = nobody_leaves,
        poll_s: float = ENDING_POLL_S,
    ) -> None:
        self.inventory = inventory
        self.is_ending = is_ending
        """Whether a copy of the model of this name is finishing its last requests, and will give back what it has."""
        self.end_old_copy = end_old_copy
        """Begins to end the copies of the model of this name that are being replaced; whether there were any."""
        self.evict_for = evict_for
        self._poll_s = poll_s
        self._owners: dict[tuple[DeviceKind, int], Owner] = {}

    async def take(self, owner: Owner, wanted: DeviceRequest) -> Assignment:
        """Books what is wanted for the owner until `release`. Waits for models that are ending, and where nothing else
        is left has the copy that the owner replaces end first, or other models make room; raises ServingError where
        what is wanted does not exist, or belongs to others that stay."""
        if wanted.kind in ("cpu", "cuda"):
            return Assignment(wanted.kind, wanted.index, gpu_count=gpus_to_see(wanted.kind, self.inventory))
        present = self._present(owner, wanted)
        began = time.monotonic()
        while True:
            units = _row(wanted, {unit for unit in present if (wanted.kind, unit) not in self._owners})
            if units is not None:
                self._owners.update({(wanted.kind, unit): owner for unit in units})
                return Assignment(wanted.kind, 0, units, gpus_to_see(wanted.kind, self.inventory))
            if self._will_change(wanted, present) or self._old_copy_makes_way(owner, wanted, present):
                await asyncio.sleep(self._poll_s)
                continue
            choices = self._choices(owner, wanted, present)
            if not await self.evict_for(owner.model, choices, time.monotonic() - began):
                raise UnavailableError(self._shortage(owner, wanted, present))

    def release(self, owner: Owner) -> None:
        """Gives back all that the owner has; harmless where it has nothing."""
        for key in [key for key, holder in self._owners.items() if holder == owner]:
            del self._owners[key]

    def _present(self, owner: Owner, wanted: DeviceRequest) -> list[int]:
        present = sorted(unit for device in self.inventory.of_kind(wanted.kind) for unit in device.units)
        missing = [unit for unit in wanted.units or () if unit not in present]
        if not present or missing or wanted.count > len(present):
            noun = _NOUNS[wanted.kind]
            there = f"{noun} {ranges(tuple(present))}" if present else f"no {noun}"
            what = f"{noun} {ranges(wanted.units)}" if wanted.units else f"{wanted.count} {noun}"
            raise InvalidArgumentError(
                f"model '{owner.model}' asks for {what}, but the server has {there} (its devices: "
                f"{self.inventory.described()}). Change or remove the parameter 'device' of its configuration; to try "
                f"it without the hardware start the server with --devices={wanted.kind}:1"
            )
        return present

    def _will_change(self, wanted: DeviceRequest, present: Sequence[int]) -> bool:
        units = present if wanted.units is None else wanted.units
        held = (self._owners.get((wanted.kind, unit)) for unit in units)
        return any(self.is_ending(holder.model) for holder in held if holder is not None)

    def _old_copy_makes_way(self, owner: Owner, wanted: DeviceRequest, present: Sequence[int]) -> bool:
        """Whether other copies of the same model have what is wanted, and end now for this one."""
        kept = {
            unit
            for (kind, unit), holder in self._owners.items()
            if kind == wanted.kind and (holder.model != owner.model or holder.copy == owner.copy)
        }
        return _row(wanted, set(present) - kept) is not None and self.end_old_copy(owner.model)

    def _choices(self, owner: Owner, wanted: DeviceRequest, present: Sequence[int]) -> list[frozenset[str]]:
        """The sets of other models that together hold what is wanted; none where this model holds part of it."""
        holders = ({self._owners.get((wanted.kind, unit)) for unit in row} for row in _rows(wanted, set(present)))
        names = [frozenset(holder.model for holder in row if holder is not None) for row in holders]
        return [models for models in dict.fromkeys(names) if owner.model not in models]

    def _shortage(self, owner: Owner, wanted: DeviceRequest, present: Sequence[int]) -> str:
        noun = _NOUNS[wanted.kind]
        units = present if wanted.units is None else wanted.units
        holders: dict[Owner, list[int]] = {}
        for unit in units:
            holder = self._owners.get((wanted.kind, unit))
            if holder is not None:
                holders.setdefault(holder, []).append(unit)
        who = "; ".join(
            f"{wanted.kind} {ranges(tuple(held))} belongs to model '{holder.model}' version {holder.version}, "
            f"instance '{holder.instance}'"
            for holder, held in holders.items()
        )
        what = f"{noun} {ranges(wanted.units)}" if wanted.units else f"{wanted.count} of the {len(present)} {noun}"
        return (
            f"instance '{owner.instance}' of model '{owner.model}' needs {what}, which one process owns at a time, and "
            f"none is free: {who}. Unload one of these models, lower the count of an instance_group, or place a model "
            "elsewhere with the parameter 'device' (for example \"cpu\") of its configuration"
        )


def _row(wanted: DeviceRequest, free: set[int]) -> tuple[int, ...] | None:
    """What is wanted, where it is free."""
    return next(_rows(wanted, free), None)


def _rows(wanted: DeviceRequest, units: set[int]) -> Iterator[tuple[int, ...]]:
    """What would do, among these units. Models that name their cores mostly count from 0, so one that takes any gets
    the last; of Gaudis it gets the first."""
    if wanted.units is not None:
        if units.issuperset(wanted.units):
            yield wanted.units
        return
    for first in sorted(units, reverse=wanted.kind == "neuron"):
        row = tuple(range(first, first + wanted.count))
        if units.issuperset(row):
            yield row
