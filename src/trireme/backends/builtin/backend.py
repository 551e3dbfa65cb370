"""What the built-in backends share: instances in the server process, from load to unload."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from trireme.backends.python.placement import Placement, placements_of
from trireme.backends.services import BackendServices, ModelSource
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest

IDLE_POLL_S = 0.02


class BuiltinInstance(ABC):
    """Implements `core.ports.Instance` on the event loop: what takes time is a timer, never a wait."""

    def __init__(self, name: str, runner: BatchRunner) -> None:
        self.name = name
        self.max_concurrency = 1
        self._runner = runner

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing is left to answer or to finish."""

    @abstractmethod
    def execute(self, batch: Batch) -> None:
        """As the port says."""

    @abstractmethod
    def cancel(self, request: InferenceRequest) -> None:
        """As the port says."""


class BuiltinBackend(ABC):
    """Implements `core.ports.Backend`; a backend adds what it checks and what its instances do."""

    def __init__(self, source: ModelSource, services: BackendServices) -> None:
        self._source = source
        self._services = services
        self._runner: BatchRunner | None = None
        self._instances: dict[Placement, BuiltinInstance] = {}

    async def complete_config(self) -> Any:
        """The configuration as given: none of these backends has anything to add."""
        return self._source.config

    async def start(self, config: ModelConfig, runner: BatchRunner) -> None:
        self._runner = runner
        self.check(config)
        await self._prepare(config)
        self._add(placements_of(config), config)

    async def stop(self) -> None:
        for placement in list(self._instances):
            self._detach(placement, self._instances.pop(placement))

    async def abandon(self) -> None:
        await self.stop()

    async def is_ready(self) -> bool:
        return bool(self._instances)

    async def resize(self, config: ModelConfig) -> None:
        wanted = placements_of(config)
        gone = [placement for placement in self._instances if placement not in wanted]
        self._add([placement for placement in wanted if placement not in self._instances], config)
        leaving = [asyncio.ensure_future(self._leave(placement, self._instances.pop(placement))) for placement in gone]
        if leaving and config.sequence_batching is None:  # sequences may go on for long, and nobody waits for their end
            await asyncio.wait(leaving)

    # What a backend adds.

    @classmethod
    @abstractmethod
    def check(cls, config: ModelConfig) -> None:
        """Raises ServingError where the backend cannot serve this configuration."""

    @abstractmethod
    async def _prepare(self, config: ModelConfig) -> None:
        """Before the first instance, with a configuration that has been checked."""

    @abstractmethod
    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> BuiltinInstance:
        """An instance; `index` counts those of the model from 0."""

    def _add(self, placements: list[Placement], config: ModelConfig) -> None:
        assert self._runner is not None
        for placement in placements:
            instance = self._make_instance(placement.name, len(self._instances), config, self._runner)
            self._instances[placement] = instance
            if not placement.is_passive:
                self._runner.attach(instance)

    async def _leave(self, placement: Placement, instance: BuiltinInstance) -> None:
        """Takes an instance away that is no longer configured, once it has finished what it began."""
        if self._runner is not None:
            await self._runner.drain(instance)
        self._detach(placement, instance)
        # Polled, so that the path of every batch has no event to set.
        while not instance.is_idle:  # noqa: ASYNC110
            await asyncio.sleep(IDLE_POLL_S)

    def _detach(self, placement: Placement, instance: BuiltinInstance) -> None:
        if self._runner is not None and not placement.is_passive:
            self._runner.detach(instance)
