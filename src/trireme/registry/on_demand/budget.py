"""The memory budget: makes room before a model is loaded, and comes back below the limit where models grew."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from trireme.core.errors import UnavailableError
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.on_demand.config import MEMORY_PARAMETER, Needs
from trireme.registry.on_demand.eviction import Eviction
from trireme.registry.on_demand.memory import ModelMemory
from trireme.registry.options import OnDemandOptions

log = logging.getLogger(__name__)

BUDGET = "memory_budget"
_DETAIL = "memory budget"


class MemoryBudget:
    """Evicts what was used the longest ago. A budget of 0 never does anything."""

    def __init__(self, options: OnDemandOptions, memory: ModelMemory, eviction: Eviction) -> None:
        self._budget_bytes = options.memory_budget_bytes
        self._timeout_s = options.load_timeout_s
        self._memory = memory
        self._eviction = eviction
        self._line: list[Needs] = []  # who waits for room, in the order of arrival

    @asynccontextmanager
    async def room(self, name: str, needs: Needs, is_start: bool = False) -> AsyncIterator[None]:
        """Begins when the model fits, or when nothing else is left that could go, and keeps its place and all that it
        needs until the end; raises ServingError where it can never fit, or where others are in the way for too long.
        At the start of the server nothing has to go for it."""
        if is_start or not self._budget_bytes:
            with self._eviction.protecting(needs.names):
                yield
            return
        self._check_declared(name, needs)
        await self._wait_in_line(name, needs)
        with self._eviction.protecting(needs.names), self._memory.reserving(needs):
            yield

    async def _wait_in_line(self, name: str, needs: Needs) -> None:
        """Whoever waits keeps nothing: two that need several models would wait for each other's. One that cannot begin
        yet is overtaken, for it may wait for a model in use that waits for the one behind."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        self._line.append(needs)
        try:
            while True:
                excess, victims, is_late = self._excess(needs), self._victims(needs), loop.time() >= deadline
                is_next = victims is not None and (is_late or not self._is_other_next(needs))
                if is_next and victims:
                    await self._eviction.evict(victims[0], BUDGET, _DETAIL)
                elif is_next and not 0 < excess <= self._memory.draining_bytes():
                    return self._warn_of_excess(name, self._memory.expected(needs), excess)
                elif is_late:
                    raise UnavailableError(
                        f"there is no memory for model '{name}': it would exceed --on-demand-memory-budget by "
                        f"{excess} bytes, and for {self._timeout_s:g} seconds all loaded models were in use, or needed "
                        "for loads before it"
                    )
                else:
                    await self._eviction.changes.wait(deadline - loop.time())
        finally:
            self._line = [others for others in self._line if others is not needs]
            self._eviction.changes.notify()  # whoever stood behind may be next

    def _is_other_next(self, needs: Needs) -> bool:
        """Whether somebody before these in the line can begin."""
        before = itertools.takewhile(lambda others: others is not needs, self._line)
        return any(self._victims(others) is not None for others in before)

    def _victims(self, needs: Needs) -> list[ModelRecord] | None:
        """Who is to go now, one after the other; None where that is not enough and waiting may bring more. An ensemble
        goes with its models, alone it frees nothing."""
        excess = self._excess(needs)
        missing = excess - self._memory.draining_bytes()
        victims = []
        for record in self._eviction.candidates(needs.names) if missing > 0 else ():
            size = self._memory.size_of(record) if missing > 0 else 0
            if size:
                victims.append(record)
                missing -= size
        if missing > 0:
            kept = needs.names.union(record.id.name for record in victims)
            may_wait = self._memory.has_reserved or self._eviction.could_free(kept, self._memory.size_of)
            return None if may_wait else victims
        return victims if victims or excess <= self._memory.ending_bytes() else None

    async def trim(self, protected: Collection[str] = ()) -> None:
        """Evicts idle models until the budget is kept or none is left."""
        while self._budget_bytes and self._used_bytes() - self._memory.draining_bytes() > self._budget_bytes:
            victim = self._next_victim(protected)
            if victim is None:
                return
            await self._eviction.evict(victim, BUDGET, _DETAIL)

    def _excess(self, needs: Needs) -> int:
        return self._used_bytes() + self._memory.expected(needs) - self._budget_bytes

    def _used_bytes(self) -> int:
        memory = self._memory
        return memory.loaded_bytes() + memory.draining_bytes() + memory.reserved_bytes()

    def _next_victim(self, protected: Collection[str]) -> ModelRecord | None:
        """The first that has memory: an ensemble goes with its models, alone it frees nothing."""
        return next((record for record in self._eviction.candidates(protected) if self._memory.size_of(record)), None)

    @staticmethod
    def _warn_of_excess(name: str, expected: int, excess: int) -> None:
        if excess <= 0:
            return
        log.warning(
            "on demand: model '%s' is expected to need %d bytes, which exceeds --on-demand-memory-budget by %d with "
            "nothing left to evict: it is loaded all the same. Where that is not its size, declare it with the "
            "parameter %s",
            name,
            expected,
            excess,
            MEMORY_PARAMETER,
        )

    def _check_declared(self, name: str, needs: Needs) -> None:
        declared = sum(size or 0 for size in needs.declared_bytes.values())
        pinned = self._eviction.pinned_records(needs.names)
        pinned_bytes = sum(self._memory.size_of(record) for record in pinned)
        if declared and declared + pinned_bytes > self._budget_bytes:
            raise UnavailableError(
                f"model '{name}' declares {declared} bytes ({MEMORY_PARAMETER}), more than "
                f"--on-demand-memory-budget has for it ({self._budget_bytes} bytes, {pinned_bytes} of them taken by "
                "pinned models)"
            )
