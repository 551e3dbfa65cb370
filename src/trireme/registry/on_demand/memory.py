"""How much memory models have, and how much they are expected to need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from trireme.core.ports import Backend
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.model import Model
from trireme.registry.on_demand.config import Needs, declared_bytes
from trireme.registry.served_models import ServedModels

ResidentBytes = Callable[[Backend], int]
"""The resident memory of all processes of a backend, at this moment."""


class ModelMemory:
    """Sizes by name: measured where a model is loaded; else as its configuration declares it, as it was last, or as
    its files tell."""

    def __init__(self, models: ServedModels, resident_bytes: ResidentBytes) -> None:
        self._models = models
        self._resident_bytes = resident_bytes
        self._last_bytes: dict[str, int] = {}
        self._estimated_bytes: dict[str, int] = {}  # as of the last load
        self._reserved: list[Needs] = []

    def size_of(self, record: ModelRecord) -> int:
        """The size of a loaded model: what its workers have, or what it declares where that is more; what its files
        tell where it has no workers, or the system does not say how large they are."""
        measured = declared = 0
        for model in record.ready_models:
            if model.backend is not None:
                measured += self._resident_bytes(model.backend)
                declared = max(declared, declared_bytes(record.id.name, model.config.parameters) or 0)
        if measured:
            self._last_bytes[record.id.name] = measured
        elif not declared and any(model.backend is not None for model in record.ready_models):
            measured = self._estimated_bytes.get(record.id.name, 0)
        return max(measured, declared)

    def expected(self, needs: Needs) -> int:
        """What loading takes on top of what is loaded already."""
        return sum(self._expected_of(name, needs) for name in needs.names if not self._is_loaded(name))

    @contextmanager
    def reserving(self, needs: Needs) -> Iterator[None]:
        """Counts what is expected as used until it is there and can be measured."""
        self._reserved.append(needs)
        self._estimated_bytes.update(needs.estimated_bytes)
        try:
            yield
        finally:
            self._reserved = [others for others in self._reserved if others is not needs]

    @property
    def has_reserved(self) -> bool:
        """Whether models are being loaded."""
        return bool(self._reserved)

    def reserved_bytes(self) -> int:
        """What loads in progress are still expected to take."""
        return sum(self.expected(needs) for needs in self._reserved)

    def loaded_bytes(self) -> int:
        """The sizes of all models that serve."""
        return sum(self.size_of(record) for record in self._models.records.values())

    def draining_bytes(self) -> int:
        """What models that finish their last requests still have."""
        return self._bytes_of(self._models.draining)

    def ending_bytes(self) -> int:
        """What of it is free in a moment, since the last request is answered."""
        return self._bytes_of(model for model in self._models.draining if not model.inflight_count)

    def _bytes_of(self, models: Iterable[Model]) -> int:
        return sum(self._resident_bytes(model.backend) for model in models if model.backend is not None)

    def _expected_of(self, name: str, needs: Needs) -> int:
        declared = needs.declared_bytes[name]
        if declared is not None:
            return declared
        return self._last_bytes.get(name, needs.estimated_bytes.get(name, 0))

    def _is_loaded(self, name: str) -> bool:
        return any(record.ready_models for record in self._models.named(name))
