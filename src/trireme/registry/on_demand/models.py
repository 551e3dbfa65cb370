"""Models that are loaded by the requests for them, and leave when they are not needed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from trireme.config.model_config import ModelConfig
from trireme.config.version_policy import versions_in
from trireme.core.errors import InvalidArgumentError, NotFoundError, ServingError, UnavailableError
from trireme.observe.on_demand import OnDemandMetrics
from trireme.registry.loading.interrupted_loads import LoadInterruptedError
from trireme.registry.loading.model_loader import ModelLoader
from trireme.registry.model import Model, ModelInference
from trireme.registry.on_demand.budget import MemoryBudget
from trireme.registry.on_demand.config import Needs, needs_of, peek
from trireme.registry.on_demand.devices import DeviceRoom
from trireme.registry.on_demand.eviction import Eviction
from trireme.registry.on_demand.memory import ModelMemory, ResidentBytes
from trireme.registry.on_demand.sweep import sweep
from trireme.registry.options import RegistryOptions
from trireme.registry.repository.repositories import DUPLICATE_REASON, Repositories
from trireme.registry.served_models import ServedModels, parse_version
from trireme.registry.waiting_requests import WaitingRequests

log = logging.getLogger(__name__)

NOT_LOADED = "on demand: not loaded"
Begin = Callable[[Coroutine[Any, Any, None]], object]
"""Runs an operation beside everything else; it is cancelled when the server stops."""


class OnDemandModels:
    """Owns the loads that requests began and the requests that wait for them."""

    def __init__(
        self,
        options: RegistryOptions,
        models: ServedModels,
        repositories: Repositories,
        loader: ModelLoader,
        begin: Begin,
        inference: Callable[[], ModelInference],
        resident_bytes: ResidentBytes,
        metrics: OnDemandMetrics,
    ) -> None:
        self._options = options
        self._models = models
        self._repositories = repositories
        self._loader = loader
        self._begin = begin
        self._inference = inference
        self._metrics = metrics
        self.memory = ModelMemory(models, resident_bytes)
        self.eviction = Eviction(models, loader, options.on_demand.pinned, metrics)
        self._budget = MemoryBudget(options.on_demand, self.memory, self.eviction)
        self.devices = DeviceRoom(options.on_demand.load_timeout_s, models, loader, self.eviction)
        self._waiting: dict[str, WaitingRequests] = {}
        self._failures: dict[str, tuple[float, str]] = {}  # until when, and why
        self._configs: dict[str, ModelConfig] = {}  # of the last load, for what the files do not say
        self._is_stopping = False
        metrics.waiting = self._count_waiting
        models.on_install.append(self._release)

    def find(self, name: str, version: str) -> Model:
        """The model that serves; else a placeholder, while it is loaded. Raises ServingError where it cannot be."""
        try:
            return self._models.find_to_infer(name, version)
        except ServingError as error:
            return self._placeholder(name, version, error)

    async def load(self, name: str, config_json: str | None, files: Mapping[str, bytes]) -> None:
        """A load that the API asks for: makes room as well, and forgets an earlier failure."""
        self._failures.pop(name, None)
        needs = await asyncio.to_thread(needs_of, self._options, self._repositories, name)
        if files:
            needs.estimated_bytes[name] = sum(map(len, files.values()))
        await self._load_in_turn(name, needs, lambda: self._loader.load(name, config_json, files))
        await self._budget.trim(needs.names)

    async def load_pinned(self, name: str) -> None:
        """A load of the start."""
        needs = await asyncio.to_thread(needs_of, self._options, self._repositories, name)
        await self._load_in_turn(name, needs, lambda: self._loader.load(name), is_start=True)

    async def sweep(self) -> None:
        """Looks after idle times, memory and removed folders until it is cancelled."""
        await sweep(self._options.on_demand, self._models, self.eviction, self._budget)

    def stop(self) -> None:
        """Answers all who wait; nothing is loaded on demand any more."""
        self._is_stopping = True
        waiting, self._waiting = self._waiting, {}
        for requests in waiting.values():
            requests.reject(UnavailableError("Server is stopping, the model the request waits for is not loaded"))

    def reasons(self) -> Mapping[str, str]:
        """Why models are not loaded, by name."""
        failed = {name: f"on demand: {reason}" for name, (_, reason) in self._failures.items()}
        return {**self.eviction.reasons, **failed}

    def loading_names(self) -> set[str]:
        """The models that requests wait for."""
        return set(self._waiting)

    def _placeholder(self, name: str, version: str, error: ServingError) -> Model:
        number = parse_version(version)
        waiting = self._waiting.get(name)
        if waiting is None:
            if self._is_stopping:
                raise UnavailableError("Server is stopping, no further models are loaded")
            if any(record.ready_models for record in self._models.named(name)):
                raise error
            folder = self._locate(name, error)
            versions = versions_in(folder) if number is not None else ()
            if versions and number not in versions:
                raise NotFoundError(f"Request for unknown model: '{name}' version {number} is not found")
            self._check_backoff(name)
            waiting = self._waiting[name] = WaitingRequests(name, self._peek(name, folder), self._options.on_demand)
            self._begin(self._load(waiting))
        return waiting.placeholder(version)

    def _locate(self, name: str, error: ServingError) -> Path:
        """The model's folder. A name comes from a client and must not lead out of the repositories."""
        is_plain = bool(name) and not name.startswith(".") and not any(char in name for char in "/\\\0")
        scan = self._repositories.locate(name) if is_plain else None
        if scan is not None and name in scan.duplicates:
            raise InvalidArgumentError(f"model '{name}' cannot be loaded: {DUPLICATE_REASON}")
        if scan is None or not scan.folders:
            self._failures.pop(name, None)
            raise NotFoundError(f"Request for unknown model: '{name}' is not found") from error
        return next(iter(scan.folders.values()))

    def _check_backoff(self, name: str) -> None:
        until, reason = self._failures.get(name, (0.0, ""))
        left_s = until - time.monotonic()
        if left_s > 0:
            raise UnavailableError(f"{reason}; the next request after {left_s:.1f} seconds tries again")

    def _peek(self, name: str, folder: Path) -> ModelConfig:
        """The configuration as far as it is known before the load: as the last one completed it, unless the files say
        something else by now."""
        try:
            config = ModelConfig.from_message(peek(self._options, folder))
        except ServingError as error:
            raise self._note_failure(name, error) from error
        known = self._configs.get(name)
        return known if known is not None and not config.inputs else config

    async def _load(self, waiting: WaitingRequests) -> None:
        name, started_ns = waiting.name, time.monotonic_ns()
        try:
            needs = await asyncio.to_thread(needs_of, self._options, self._repositories, name)
            await self._load_in_turn(name, needs, lambda: self._load_for(waiting))
        except LoadInterruptedError as error:  # the next request may have it loaded again
            self._end_load(waiting, UnavailableError(error.message.strip()))
        except ServingError as error:
            self._end_load(waiting, self._note_failure(name, error))
        except Exception as error:
            log.exception("on demand: unexpected failure while loading '%s'", name)
            self._end_load(waiting, self._note_failure(name, ServingError(f"{type(error).__name__}: {error}")))
        else:
            duration_ns = time.monotonic_ns() - started_ns
            log.info("on demand: loaded '%s' in %.3f seconds", name, duration_ns / 1e9)
            self._metrics.count_load(name, duration_ns)
            self._end_load(waiting, None)
            await self._budget.trim(needs.names)
        finally:
            self._end_load(waiting, UnavailableError("Server is stopping, the load was interrupted"))

    async def _load_for(self, waiting: WaitingRequests) -> None:
        log.info("on demand: loading '%s' for %d waiting requests", waiting.name, waiting.pending_count)
        await self._loader.load(waiting.name)

    async def _load_in_turn(
        self, name: str, needs: Needs, load: Callable[[], Awaitable[None]], is_start: bool = False
    ) -> None:
        """Loads when there is memory for it, and once more where the load gave its devices to an earlier one."""
        deadline = time.monotonic() + self._options.on_demand.load_timeout_s
        while True:
            try:
                async with self._budget.room(name, needs, is_start):
                    return await load()
            except ServingError:
                if not await self.devices.gave_way(needs.names) or time.monotonic() >= deadline:
                    raise

    def _end_load(self, waiting: WaitingRequests, error: ServingError | None) -> None:
        if self._waiting.get(waiting.name) is waiting:
            del self._waiting[waiting.name]
            if error is None:
                waiting.release(self._models, self._inference())
            else:
                waiting.reject(error)

    def _release(self, name: str) -> None:
        """A model has been put in place, by whomever: who waits for it goes first, before any request that comes."""
        self._failures.pop(name, None)
        self.eviction.reasons.pop(name, None)
        for record in self._models.named(name):
            if record.ready_models:
                self._configs[name] = record.ready_models[-1].config
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting.release(self._models, self._inference())

    def _note_failure(self, name: str, error: ServingError) -> ServingError:
        reason = f"loading model '{name}' on demand failed: {error.message.strip()}"
        log.error("on demand: %s", reason)
        for record in self._models.named(name):
            if not record.ready_models:
                record.is_wanted = False  # only a request wanted it: it is not to come back with its composing models
        self._failures[name] = (time.monotonic() + self._options.on_demand.backoff_s, reason)
        self._metrics.count_failure(name)
        return UnavailableError(reason)

    def _count_waiting(self) -> Mapping[str, int]:
        return {name: requests.pending_count for name, requests in self._waiting.items()}
