"""One loaded version of a model: its configuration, what executes it, and what it accepts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.core.ports import Backend, InferencePort, Scheduler
from trireme.core.request import InferenceRequest
from trireme.observe.stats import ModelStats
from trireme.registry.input_check import InputCheck
from trireme.registry.repository.repositories import ModelId
from trireme.scheduling.rate_limiter import InstanceGate


class ModelInference(InferencePort, Protocol):
    """The server's inference, as the registry's ensembles use it."""

    def infer_on(self, model: Model, request: InferenceRequest) -> None:
        """The same as `infer` for a model that is already found."""


class Model:
    """A version that serves requests, or is about to, or finishes those it took."""

    __slots__ = (
        "_labels",
        "_required",
        "adapters_folder",
        "backend",
        "called",
        "checks",
        "config",
        "correlation_control",
        "folder",
        "gate",
        "id",
        "input_count",
        "is_decoupled",
        "is_placeholder",
        "is_sequence",
        "is_serving",
        "load_seconds",
        "loaded_ns",
        "loaded_s",
        "max_batch_size",
        "name",
        "output_reshapes",
        "reshaped_inputs",
        "scheduler",
        "stats",
        "version",
        "version_text",
    )

    def __init__(
        self,
        model_id: ModelId,
        version: int,
        config: ModelConfig,
        scheduler: Scheduler,
        stats: ModelStats,
        backend: Backend | None = None,
        labels: Mapping[str, Sequence[str]] | None = None,
        folder: object = None,
        gate: InstanceGate | None = None,
    ) -> None:
        self.id = model_id
        self.name = model_id.name
        self.version = version
        self.version_text = str(version)
        self.config = config
        self.scheduler = scheduler
        self.stats = stats
        self.backend = backend  # None for an ensemble
        self.folder = folder  # keeps a temporary model folder as long as the model
        self.adapters_folder: Path | None = None  # where a language model's adapters are, if it has any
        self.gate = gate  # None where executions are not limited
        self.called: object = None  # what front ends call, made by the server for the first of them
        self.is_serving = False  # set while the registry hands the model out
        self.is_placeholder = False  # set where requests wait here for the model itself, which is being loaded
        self.load_seconds = 0.0
        self.loaded_ns = time.monotonic_ns()
        self.loaded_s = int(time.time())  # the same for people
        self._labels = labels or {}
        self._prepare_checks(config)

    def _prepare_checks(self, config: ModelConfig) -> None:
        self.max_batch_size = config.max_batch_size
        self.is_decoupled = config.is_decoupled
        has_batch = config.max_batch_size > 0
        self.checks = {name: InputCheck(entry, has_batch) for name, entry in config.inputs.items()}
        self.input_count = len(self.checks)
        self._required = frozenset(name for name, check in self.checks.items() if not check.is_optional)
        self.reshaped_inputs = tuple(check for check in self.checks.values() if check.reshape is not None)
        self.output_reshapes: dict[str, TensorConfig] = {
            name: entry for name, entry in config.outputs.items() if entry.reshape is not None
        }
        self.is_sequence = config.message.HasField("sequence_batching")
        self.correlation_control = _correlation_control(config) if self.is_sequence else None

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered, here and by processes that have workers of the model."""
        return self.scheduler.inflight_count + self.stats.inflight_elsewhere()

    def labels(self, output_name: str) -> Sequence[str]:
        """The class names of an output, by index; empty where the configuration names no file."""
        return self._labels.get(output_name, ())

    def has_step(self, name: str) -> bool:
        """Whether it is an ensemble that is made of the named model, among others."""
        return any(step.model_name == name for step in self.config.message.ensemble_scheduling.step)

    def missing_inputs(self, request: InferenceRequest) -> list[str]:
        """Inputs the model needs and the request does not have, in the order of the configuration."""
        return [name for name in self.checks if name in self._required and name not in request.inputs]

    async def stop(self) -> None:
        """Returns when every request it took is answered and nothing of the model runs any more."""
        self.called = None  # which points back here
        await self.scheduler.stop()
        if self.backend is not None:
            await self.backend.stop()


def _correlation_control(config: ModelConfig) -> tuple[str, str] | None:
    """The tensor that carries the correlation id, and the datatype it is declared with."""
    for entry in config.message.sequence_batching.control_input:
        for control in entry.control:
            if control.kind == control.CONTROL_SEQUENCE_CORRID:
                kinds = control.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
                return entry.name, kinds[control.data_type].name
    return None
