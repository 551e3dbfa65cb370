"""The registry: which models exist, which versions, in which state; and the way from one state to the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trireme.config.model_config import ModelConfig
from trireme.core.errors import UnavailableError
from trireme.core.ports import Backend
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.on_demand import OnDemandMetrics
from trireme.registry.index import AbsentModels, IndexEntry, index_of, scan_or_nothing
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.loading.model_loader import ModelLoader
from trireme.registry.loading.poller import Report, RepositoryPoller
from trireme.registry.loading.version_loader import BackendFactory, VersionLoader
from trireme.registry.loading.version_switch import VersionSwitch
from trireme.registry.model import Model, ModelInference
from trireme.registry.on_demand.config import readable_configs
from trireme.registry.on_demand.memory import ResidentBytes
from trireme.registry.on_demand.models import NOT_LOADED, OnDemandModels
from trireme.registry.options import RegistryOptions
from trireme.registry.repository.repositories import Repositories, Scan
from trireme.registry.repository.shared_scan import SharedScan
from trireme.registry.served_models import ServedModels
from trireme.registry.shutdown import Progress, drain_models
from trireme.registry.startup import StartupReport, load_startup_models
from trireme.registry.waiting_requests import WaitingRequests
from trireme.scheduling.cache.front import ResponseCacheFront
from trireme.scheduling.rate_limiter import RateLimiter

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class ModelRegistry:
    """Composes the registry's parts and owns the tasks in which loads and unloads run."""

    def __init__(
        self,
        options: RegistryOptions,
        backend_factory: BackendFactory,
        metrics: MetricsRegistry,
        resident_bytes: ResidentBytes | None = None,
        response_cache: ResponseCacheFront | None = None,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self.options = options
        self.models = ServedModels(metrics, options.has_namespacing)
        self.find: Callable[[str, str], Model] = self.models.find
        self.find_to_infer: Callable[[str, str], Model] = self.models.find_to_infer
        """The same for inference: a placeholder, at which the request waits, where the model is being loaded for it
        because the mode is auto, or reloaded on a device that only one copy can have."""
        self.on_failures: Report | None = None
        """Told why models fail after the start that are loaded because their files changed; their errors are then not
        in the log."""
        self._repositories = Repositories(options.repositories, options.has_namespacing)
        version_loader = VersionLoader(options, backend_factory, response_cache, rate_limiter)
        self._switch = VersionSwitch(options, self.models, version_loader)
        self._loader = ModelLoader(options, self.models, self._repositories, self._switch)
        self._on_demand: OnDemandModels | None = None
        if options.is_on_demand:
            self._on_demand = self._create_on_demand(metrics, resident_bytes or _no_bytes)
            self.find_to_infer = self._on_demand.find
        self._shared_scan = SharedScan(self.scan)
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
        load_named = self._loader.load if self._on_demand is None else self._on_demand.load_pinned
        first_load = load_startup_models(self.options, self.models, self._repositories, self._loader, load_named)
        report = await self._run(first_load)
        if self.options.control_mode == "poll" and self.options.poll_seconds > 0:
            failed = [failure.name for failure in report.failures]
            poller = RepositoryPoller(self.models, self._repositories, self._loader, self._begin, failed)
            poller.retries_unchanged = self.options.retries_unchanged
            poller.report = self.on_failures
            self._poller = asyncio.create_task(poller.run(self.options.poll_seconds))
        if self._on_demand is not None:
            self._poller = asyncio.create_task(self._on_demand.sweep())
        return report

    async def loaded(self, name: str, version: str) -> Model:
        """The model that serves, for whoever must know it before there is a request: waits among the requests, with
        their limits, where it is being loaded; raises ServingError where it does not come."""
        while (model := self.find_to_infer(name, version)).is_placeholder:
            assert isinstance(model.scheduler, WaitingRequests), "where a placeholder's requests wait"
            await model.scheduler.ended(self.options.on_demand.load_timeout_s)
        return model

    async def load(self, name: str, config_json: str | None, files: Mapping[str, bytes]) -> None:
        """Loads or reloads, and returns when that is done; goes on when the caller goes away."""
        target = self._loader if self._on_demand is None else self._on_demand
        await self._run(target.load(name, config_json, files))

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unloads, and returns when the model takes no more requests."""
        if self._on_demand is not None:
            self._on_demand.eviction.reasons.pop(name, None)
        await self._run(self._loader.unload(name, unload_dependents))

    def register_repository(self, path: Path, names: Mapping[str, str]) -> None:
        """One more repository; `names` are those of models, by folder, that are not their folders'. Loads nothing."""
        self._repositories.register(path, names)

    def unregister_repository(self, path: Path) -> None:
        """Forgets a repository that was registered; unloads nothing."""
        self._repositories.unregister(path)

    def end_old_copy(self, name: str) -> bool:
        """Ends the copies of a model that are being replaced before their replacement is ready; whether there are
        any. For what only one copy can have."""
        return self._switch.end_old_copy(name)

    async def evict_for(self, name: str, choices: Sequence[Collection[str]], waited_s: float) -> bool:
        """Has models give up what another one needs, where the mode is auto; see `devices.ownership.EvictFor`."""
        return self._on_demand is not None and await self._on_demand.devices.evict_for(name, choices, waited_s)

    def available_configs(self) -> list[ModelConfig]:
        """Of every model that can be asked for now: those that serve or, where requests load them, all that the
        repositories hold, as far as their files tell. Blocks on the file system in that case."""
        if self._on_demand is None:
            return [model.config for model in self.models.serving()]
        return readable_configs(self.options, self._repositories)

    def needed_records(self) -> list[ModelRecord]:
        """The models without which the server is not ready: those it was told to have. One that comes on demand says
        nothing about the server when it loads or fails."""
        if self._on_demand is None:
            return list(self.models.records.values())
        return self._on_demand.eviction.pinned_records()

    def scan(self) -> Scan:
        """What the repositories hold. Blocks on the file system; any thread may ask."""
        return scan_or_nothing(self._repositories)

    async def fresh_index(self, ready_only: bool) -> list[IndexEntry]:
        """The index of this moment; the disk is read beside the event loop."""
        return self.index(ready_only, await self._shared_scan.fresh())

    def index(self, ready_only: bool, scan: Scan) -> list[IndexEntry]:
        """Every version of every known model, and the models that the repositories held when they were scanned."""
        absent = None
        if self._on_demand is not None:
            absent = AbsentModels(
                self._on_demand.reasons(), frozenset(self._on_demand.loading_names()), otherwise=NOT_LOADED
            )
        return index_of(self.models, scan, ready_only, absent)

    async def stop(self, timeout_s: float, progress: Progress | None = None) -> bool:
        """Ends all loads, waits for all requests, unloads everything; False where the time did not suffice."""
        self._is_stopping = True
        if self._on_demand is not None:
            self._on_demand.stop()
        for task in (*self._operations, *([self._poller] if self._poller is not None else [])):
            task.cancel()
        return await drain_models(self.models, timeout_s, lambda: len(self._operations), progress)

    async def _run(self, operation: Coroutine[Any, Any, Result]) -> Result:
        if self._is_stopping:
            operation.close()
            raise UnavailableError("Server exiting")
        task = self._begin(operation)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise UnavailableError("the operation was interrupted: Server exiting") from None
            raise

    def _begin(self, operation: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return task

    def _create_on_demand(self, metrics: MetricsRegistry, resident_bytes: ResidentBytes) -> OnDemandModels:
        counted = metrics.on_demand = OnDemandMetrics()
        return OnDemandModels(
            self.options,
            self.models,
            self._repositories,
            self._loader,
            self._begin,
            lambda: self.inference,
            resident_bytes,
            counted,
        )


def _no_bytes(backend: Backend) -> int:
    """Where nobody measures, sizes are what configurations declare."""
    return 0
