"""Which loaded models may go, which of them first, and how they go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from trireme.core.clock import Clock
from trireme.observe.on_demand import OnDemandMetrics
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.loading import dependencies
from trireme.registry.loading.model_loader import ModelLoader
from trireme.registry.model import Model
from trireme.registry.on_demand.changes import Changes
from trireme.registry.on_demand.config import is_pinned
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class OngoingLoad:
    """A load that keeps what it needs."""

    names: set[str]
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Eviction:
    """Models go together with the ensembles that need them, and are in use as long as one of those is."""

    def __init__(
        self,
        models: ServedModels,
        loader: ModelLoader,
        pinned: Collection[str],
        metrics: OnDemandMetrics,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self.reasons: dict[str, str] = {}  # why a model is not loaded, by name, until it is again
        self._models = models
        self._loader = loader
        self._pinned = frozenset(pinned)
        self._metrics = metrics
        self._clock = clock
        self._busy_ns: dict[Model, int] = {}  # when a model was last seen with requests in flight
        self._leaving: set[str] = set()
        self.changes = Changes(models)
        """Wakes those who wait for what others have."""
        self.loads: list[OngoingLoad] = []
        """In the order in which they began."""

    @contextmanager
    def protecting(self, names: set[str]) -> Iterator[None]:
        """Keeps these models while one of them loads, which needs the others."""
        load = OngoingLoad(names)
        self.loads.append(load)
        try:
            yield
        finally:
            self.loads.remove(load)
            load.is_over.set()
            self.changes.notify()

    def needed_with(self, name: str) -> set[str]:
        """The models that are being loaded together with this one, and itself."""
        return {name}.union(*(load.names for load in self.loads if name in load.names))

    def candidates(self, protected: Collection[str] = ()) -> list[ModelRecord]:
        """The loaded models that nobody uses and nobody pinned, the one that was used the longest ago first."""
        found = [record for record in self._models.records.values() if self.may_go(record, protected)]
        return sorted(found, key=self.last_used_ns)

    def could_free(self, protected: Collection[str], size_of: Callable[[ModelRecord], int]) -> bool:
        """Whether waiting may bring candidates that have memory: a model is in use, or on its way out, that may go
        afterwards."""
        if self._leaving or self._models.draining:
            return True
        return any(
            record.ready_models and not self.is_pinned(record) and record.id.name not in protected and size_of(record)
            for record in self._models.records.values()
        )

    def is_pinned(self, record: ModelRecord) -> bool:
        """Whether the model, or an ensemble that needs it, is to stay."""
        return any(
            member.id.name in self._pinned or any(is_pinned(model.config.parameters) for model in member.ready_models)
            for member in self.group(record)
        )

    def pinned_records(self, without: Collection[str] = ()) -> list[ModelRecord]:
        """The pinned models among those that are known, without these names."""
        records = self._models.records.values()
        return [record for record in records if record.id.name not in without and self.is_pinned(record)]

    def last_used_ns(self, record: ModelRecord) -> int:
        """When the last request came to the model or to an ensemble that needs it; its load where none did."""
        models = [model for member in self.group(record) for model in member.ready_models]
        return max((self._used_ns(model) for model in models), default=0)

    def note_use(self) -> None:
        """Remembers who is busy now, so that a long request counts until its end and not from its arrival."""
        now_ns = self._clock()
        self._busy_ns = {
            model: now_ns if model.inflight_count else self._busy_ns.get(model, 0) for model in self._models.serving()
        }

    async def evict(self, record: ModelRecord, why: str, detail: str) -> None:
        """Unloads the model after the ensembles above it, and returns when its memory is free. `why` is the word that
        is counted, `detail` what logs and the index say."""
        group = self.group(record)
        names = [member.id.name for member in group]
        self._leaving.update(names)
        try:
            going = [model for member in group for model in member.ready_models]
            for member in reversed(group):
                if not member.ready_models:
                    continue
                name = member.id.name
                log.info("on demand: evicting '%s': %s", name, detail)
                self.reasons[name] = f"evicted: {detail}"
                await self._loader.unload(name)
                self._metrics.count_eviction(name, why)
            drains = [self._models.draining[model] for model in going if model in self._models.draining]
            if drains:
                await asyncio.wait(drains)
        finally:
            self._leaving.difference_update(names)
            self.changes.notify()

    def is_busy(self, record: ModelRecord) -> bool:
        """Whether the model, or an ensemble that needs it, has requests."""
        return any(model.inflight_count for member in self.group(record) for model in member.ready_models)

    def may_go(self, record: ModelRecord, protected: Collection[str] = ()) -> bool:
        """Whether the model is loaded, and nobody uses it, pinned it or needs it for a load under way."""
        if not record.ready_models or self.is_pinned(record) or self.is_busy(record):
            return False
        kept = self._leaving.union(protected, *(load.names for load in self.loads))
        return not any(member.id.name in kept for member in self.group(record))

    def group(self, record: ModelRecord) -> list[ModelRecord]:
        """The model, then the ensembles that need it, each behind all that it needs of them."""
        group = [record]
        for member in group:
            for above in dependencies.dependents(self._models, member.id.name):
                if not above.ready_models:
                    continue  # neither uses the model nor has to go; only such ensembles can form circles
                if above in group:
                    group.remove(above)
                group.append(above)
        return group

    def _used_ns(self, model: Model) -> int:
        return max(model.loaded_ns, model.stats.last_arrival_ns, self._busy_ns.get(model, 0))
