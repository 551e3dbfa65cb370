"""The memory budget: makes room before a model is loaded, and comes back below the limit where models grew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from trireme.core.errors import UnavailableError
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.on_demand_config import MEMORY_PARAMETER, Needs
from trireme.registry.on_demand_eviction import Eviction
from trireme.registry.on_demand_memory import ModelMemory
from trireme.registry.on_demand_options import OnDemandOptions

log = logging.getLogger(__name__)

BUDGET = "memory_budget"
_DETAIL = "memory budget"
_LOOK_S = 0.02


class MemoryBudget:
    """Evicts what was used the longest ago. A budget of 0 never does anything."""

    def __init__(self, options: OnDemandOptions, memory: ModelMemory, eviction: Eviction) -> None:
        self._budget_bytes = options.memory_budget_bytes
        self._timeout_s = options.load_timeout_s
        self._memory = memory
        self._eviction = eviction

    async def make_room(self, name: str, needs: Needs) -> None:
        """Returns when the model fits, or when nothing else is left that could go, and reserves its place until
        `end_load`; raises ServingError where it can never fit, or where all others stay in use for too long."""
        self._eviction.protect(name, needs.names)
        if not self._budget_bytes:
            return
        self._check_declared(name, needs)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        while (excess := self._excess(needs)) > 0:
            victim = self._next_victim(needs.names) if excess > self._memory.draining_bytes() else None
            if victim is not None:
                await self._eviction.evict(victim, BUDGET, _DETAIL)
            elif not self._eviction.could_free(needs.names, self._memory.size_of) and not self._memory.has_reserved:
                self._warn_of_excess(name, self._memory.expected(needs), excess)
                break
            elif asyncio.get_running_loop().time() >= deadline:
                raise UnavailableError(
                    f"there is no memory for model '{name}': it would exceed --on-demand-memory-budget by {excess} "
                    f"bytes, and for {self._timeout_s:g} seconds all loaded models were in use"
                )
            else:
                await asyncio.sleep(_LOOK_S)
        self._memory.reserve(name, needs)

    def end_load(self, name: str) -> None:
        """The load is over, one way or the other: what it brought is measured from now on, and may go."""
        self._memory.release(name)
        self._eviction.unprotect(name)

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
