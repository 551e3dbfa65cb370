"""The server process's side of leases: looks again and again which models are busy, and shares their workers out."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from trireme.app.leases.fitness import leasable_backend
from trireme.app.leases.model_leases import ModelLeases
from trireme.frontends.processes.front_process import FrontProcess
from trireme.frontends.processes.pool import FrontendProcesses
from trireme.registry.model import Model
from trireme.server.server import InferenceServer

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25


class LeaseIssuer:
    """Used on the event loop's thread, from when the first clients are there to the end of the server."""

    def __init__(self, processes: FrontendProcesses, server: InferenceServer) -> None:
        self._processes = processes
        self._server = server
        self._model_leases: dict[Model, ModelLeases] = {}
        self._unfit: dict[Model, str] = {}
        self._numbers = iter(range(1, 1 << 31))
        self._timer: asyncio.TimerHandle | None = None
        processes.on_unfit = self._on_unfit
        server.registry.models.on_retire = self._on_retire
        server.registry.models.on_install.append(self._on_install)
        server.tracing.on_replace = self._on_watched
        server.recorder.on_start = self._on_watched
        server.on_exit = self.close

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def close(self) -> None:
        """The server ends: all requests are begun in the server process from this moment on, which refuses them."""
        if self._timer is not None:
            self._timer.cancel()
        for model_leases in self._model_leases.values():
            model_leases.end("the server ends")

    @property
    def lease_counts(self) -> dict[FrontProcess, int]:
        """How many workers each process has."""
        counts: dict[FrontProcess, int] = {}
        for model_leases in self._model_leases.values():
            for process, count in model_leases.lease_counts.items():
                counts[process] = counts.get(process, 0) + count
        return counts

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        holders = [process for process in self._processes.living if process.unanswered_count <= 1]
        for model, model_leases in self._fitting():
            if self._is_watched:
                model_leases.rest("requests are looked at one by one")
            else:
                model_leases.share(holders)
            if model_leases.unfit_reason:
                self._note_unfit(model, model_leases.unfit_reason)

    @property
    def _is_watched(self) -> bool:
        return self._server.tracing.is_on or self._server.calls.recorder is not None

    def _fitting(self) -> list[tuple[Model, ModelLeases]]:
        """The models that serve alone under their names, and are not known to be unfit."""
        by_name: dict[str, list[Model]] = {}
        for model in self._server.registry.models.serving():
            by_name.setdefault(model.name, []).append(model)
        for model in [*self._model_leases, *self._unfit]:
            if model not in by_name.get(model.name, ()):
                self._forget(model)
        fitting = []
        for models in by_name.values():
            if len(models) > 1:
                self._let_rest(models)
                continue
            model_leases = self._leases_of(models[0])
            if model_leases is not None:
                fitting.append((models[0], model_leases))
        return fitting

    def _let_rest(self, models: list[Model]) -> None:
        for model in models:
            model_leases = self._model_leases.get(model)
            if model_leases is not None:
                model_leases.rest("it is not alone under its name")

    def _leases_of(self, model: Model) -> ModelLeases | None:
        if model in self._unfit:
            return None
        model_leases = self._model_leases.get(model)
        if model_leases is None:
            backend = leasable_backend(model)
            if backend is None:
                self._unfit[model] = "its configuration"
                return None
            model_leases = self._model_leases[model] = ModelLeases(model, backend, self._numbers)
        return model_leases

    def _forget(self, model: Model) -> None:
        """The model has left the service, and its leases ended with that."""
        self._unfit.pop(model, None)
        self._model_leases.pop(model, None)

    def _on_retire(self, model: Model) -> None:
        model_leases = self._model_leases.get(model)
        if model_leases is not None:
            model_leases.end("it leaves the service")

    def _on_install(self, name: str) -> None:
        for model, model_leases in self._model_leases.items():
            if model.name == name:
                model_leases.end("another version has come under its name")

    def _on_watched(self) -> None:
        if self._is_watched:
            for model_leases in self._model_leases.values():
                model_leases.end("requests are looked at one by one")

    def _on_unfit(self, term: int, reason: str) -> None:
        for model, model_leases in self._model_leases.items():
            if model_leases.has(term) and model not in self._unfit:
                self._note_unfit(model, reason)
                model_leases.end(reason)

    def _note_unfit(self, model: Model, reason: str) -> None:
        self._unfit[model] = reason
        log.info("workers of model '%s' are leased no more: %s", model.name, reason)
