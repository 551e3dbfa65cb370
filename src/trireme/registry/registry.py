"""The registry: which models exist, which versions, in which state; and the way from one state to the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from trireme.core.errors import UnavailableError
from trireme.observe.metrics import MetricsRegistry
from trireme.registry.index import IndexEntry, index_of
from trireme.registry.loading import ModelLoader
from trireme.registry.model import Model, ModelInference
from trireme.registry.options import RegistryOptions
from trireme.registry.poller import RepositoryPoller
from trireme.registry.repository import Repositories
from trireme.registry.served_models import ServedModels
from trireme.registry.shutdown import Progress, drain_models
from trireme.registry.startup import StartupReport, load_startup_models
from trireme.registry.switching import VersionSwitch
from trireme.registry.version_loader import BackendFactory, VersionLoader

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class ModelRegistry:
    """Composes the registry's parts and owns the tasks in which loads and unloads run."""

    def __init__(self, options: RegistryOptions, backend_factory: BackendFactory, metrics: MetricsRegistry) -> None:
        self.options = options
        self.models = ServedModels(metrics, options.has_namespacing)
        self.find: Callable[[str, str], Model] = self.models.find
        self._repositories = Repositories(options.repositories, options.has_namespacing)
        self._switch = VersionSwitch(options, self.models, VersionLoader(options, backend_factory))
        self._loader = ModelLoader(options, self.models, self._repositories, self._switch)
        self._poller: asyncio.Task[None] | None = None
        self._operations: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    @property
    def inference(self) -> ModelInference:
        """How ensembles run their steps."""
        return self._switch.inference

    @inference.setter
    def inference(self, inference: ModelInference) -> None:
        self._switch.inference = inference

    async def start(self) -> StartupReport:
        """Loads the start-up models and begins to poll where that is asked for. `inference` is set before."""
        first_load = load_startup_models(self.options, self.models, self._repositories, self._loader)
        report = await self._run(first_load)
        if self.options.control_mode == "poll" and self.options.poll_seconds > 0:
            poller = RepositoryPoller(self.models, self._repositories, self._loader)
            self._poller = asyncio.create_task(poller.run(self.options.poll_seconds))
        return report

    async def load(self, name: str, config_json: str | None, files: Mapping[str, bytes]) -> None:
        """Loads or reloads, and returns when that is done; goes on when the caller goes away."""
        await self._run(self._loader.load(name, config_json, files))

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unloads, and returns when the model takes no more requests."""
        await self._run(self._loader.unload(name, unload_dependents))

    def index(self, ready_only: bool) -> list[IndexEntry]:
        """Every version of every known model, and the models the repositories hold at this moment."""
        return index_of(self.models, self._repositories, ready_only)

    async def stop(self, timeout_s: float, progress: Progress | None = None) -> bool:
        """Ends all loads, waits for all requests, unloads everything; False where the time did not suffice."""
        self._is_stopping = True
        for task in (*self._operations, *([self._poller] if self._poller is not None else [])):
            task.cancel()
        return await drain_models(self.models, timeout_s, lambda: len(self._operations), progress)

    async def _run(self, operation: Coroutine[Any, Any, Result]) -> Result:
        if self._is_stopping:
            operation.close()
            raise UnavailableError("Server exiting")
        task = asyncio.get_running_loop().create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise UnavailableError("the operation was interrupted: Server exiting") from None
            raise
