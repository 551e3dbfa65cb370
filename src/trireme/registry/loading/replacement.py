"""Reloads whose old and new copies cannot live at the same time: the old one ends first, and requests wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from trireme.core.errors import ServingError, UnavailableError
from trireme.registry.lifecycle import READY, ModelRecord
from trireme.registry.model import ModelInference
from trireme.registry.options import OnDemandOptions
from trireme.registry.repository.repositories import ModelId
from trireme.registry.served_models import ServedModels
from trireme.registry.waiting_requests import WaitingRequests

log = logging.getLogger(__name__)


class Replacement:
    """A load under way that replaces copies which serve."""

    def __init__(self, record: ModelRecord, loading: Collection[int], ending: Collection[int]) -> None:
        self.record = record
        self.loading = loading
        self.ending = ending
        self.gone: list[int] = []  # versions that made way
        self.failure: ServingError | None = None  # why nothing serves in their place; what those who wait are told
        self.waiting: WaitingRequests | None = None


class Replacements:
    """Knows the replacements under way, has their old copies end where one asks for it, and keeps the requests that
    come until something serves again."""

    def __init__(self, options: OnDemandOptions, models: ServedModels, inference: Callable[[], ModelInference]) -> None:
        self._options = options
        self._models = models
        self._inference = inference
        self._replacements: dict[ModelId, Replacement] = {}

    @contextmanager
    def replacing(
        self, record: ModelRecord, loading: Collection[int], ending: Collection[int]
    ) -> Iterator[Replacement]:
        """From the load of new copies until they, or the old ones again, serve: after that nobody waits any more."""
        replacement = self._replacements[record.id] = Replacement(record, loading, ending)
        try:
            yield replacement
        finally:
            del self._replacements[record.id]
            self._end_wait(replacement)

    def end_old_copy(self, name: str) -> bool:
        """Takes those versions of a model out of service that the load under way replaces; whether there are any."""
        makes_way = False
        for model_id, replacement in self._replacements.items():
            record = replacement.record
            serving = [version for version in replacement.ending if record.life(version).state == READY]
            if model_id.name == name and serving:
                self._withdraw(replacement, serving)
                makes_way = True
        return makes_way

    def _withdraw(self, replacement: Replacement, serving: list[int]) -> None:
        record = replacement.record
        name = record.id.name
        log.warning(
            "model '%s' needs the device that it has for its next copy, and no other is free: version %s ends first, "
            "and requests wait until the next copy is ready",
            name,
            ", ".join(map(str, serving)),
        )
        waiting = replacement.waiting = WaitingRequests(name, record.ready_models[-1].config, self._options)
        replacement.gone += serving
        self._models.reloading[name] = waiting.placeholder
        self._models.withdraw(record, serving)
        for version in serving:
            if version in replacement.loading:
                record.life(version).begin_loading()

    def _end_wait(self, replacement: Replacement) -> None:
        waiting = replacement.waiting
        if waiting is None:
            return
        self._models.reloading.pop(replacement.record.id.name, None)
        if replacement.record.ready_models:
            waiting.release(self._models, self._inference())
        else:
            reason = "the load was interrupted" if replacement.failure is None else replacement.failure.message
            waiting.reject(UnavailableError(f"reloading model '{waiting.name}' failed: {reason}"))
