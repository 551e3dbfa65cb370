"""One model in detail: the last hour, its workers, where its configuration comes from, how it can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trireme.config.model_config import EnsembleStepConfig
from trireme.console.config_origin import config_in_force, config_written, fields_set, file_text, origins
from trireme.console.figures import IDLE
from trireme.console.rows import Key, instance_count
from trireme.console.sampler import Sampler
from trireme.core.errors import NotFoundError, ServingError
from trireme.observe.metrics import MetricsRegistry
from trireme.registry.lifecycle import ModelRecord, PolledModel
from trireme.registry.loading.dependencies import dependents
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.registry.served_models import parse_version
from trireme.server.server import InferenceServer
from trireme.server.text_models.forms import embedding_form, generation_form

CHAT_BACKENDS = frozenset(("llm", "vllm", "tensorrtllm"))
"""Those whose models know the turns of a conversation."""
_MOST_EVENTS = 100
_MOST_LABELS = 2000


class ModelDetails:
    """Answers questions about one model at a time. Used on the event loop's thread, where nothing else is said."""

    def __init__(
        self,
        server: InferenceServer,
        metrics: MetricsRegistry,
        sampler: Sampler,
        grpc_port: int | None = None,
        grpc_has_tls: bool = False,
    ) -> None:
        self._grpc_port = grpc_port
        self._grpc_has_tls = grpc_has_tls
        self._server = server
        self._metrics = metrics
        self._sampler = sampler

    def knows(self, name: str) -> bool:
        """Whether the model is loaded, was, or lay in a repository when these were last read."""
        is_there = any(model_id.name == name for model_id in self._sampler.scan.folders)
        return is_there or bool(self._server.registry.models.named(name))

    def describe(self, name: str, version: str) -> dict[str, Any]:
        """What is known of the model, of the newest version that serves for ""; raises ServingError."""
        record = self._record(name)
        number = _number(record, version)
        life = record.versions.get(number)
        model = _serving(record, number)
        key = name, number
        history = self._sampler.models
        columns = history.columns_of(key) | self._sampler.engines.columns_of(key)
        detail: dict[str, Any] = {
            "name": name,
            "version": str(number) if number else "",
            "versions": [str(known) for known in sorted(record.versions)],
            "state": life.state if life is not None else "NOT LOADED",
            "reason": self._server.registry.models.problem_of(name) or (life.reason or life.failure if life else ""),
            "can_control": self._server.registry.options.allows_control,
            "grpc_port": self._grpc_port,
            "grpc_has_tls": self._grpc_has_tls,
            "ensembles": self._ensembles(name),
            "folder": str(record.loaded.folder) if record.loaded is not None else "",
            "history": {"times": history.times(), **columns},
            "events": self._events(key),
        }
        if model is not None:
            detail["serving"] = self._serving(model, model is record.ready_models[-1])
            detail["devices"] = self._devices(model)
        return detail

    def loaded_from(self, name: str) -> PolledModel | None:
        """What the model was loaded from; raises NotFoundError."""
        return self._record(name).loaded

    def read_written(self, loaded: PolledModel | None) -> dict[str, Any] | None:
        """What somebody wrote into that configuration. Blocks on the file system; any thread may ask."""
        return None if loaded is None else config_written(loaded, self._server.registry.options.config_name)

    def serves(self, name: str, version: str) -> bool:
        """Whether this version does; raises ServingError where there is none."""
        record = self._record(name)
        return _serving(record, _number(record, version)) is not None

    def folder_of(self, name: str) -> Path | None:
        """Where the model lies, loaded or not; None where that is not known."""
        loaded = self.loaded_from(name)
        found = (folder for model_id, folder in self._sampler.scan.folders.items() if model_id.name == name)
        return next(found, None) if loaded is None else loaded.folder

    def read_file(self, folder: Path | None) -> dict[str, Any]:
        """What stands in the configuration file of a model that does not serve, right or wrong; an empty text where
        there is none. Blocks on the file system; any thread may ask."""
        return {"text": "" if folder is None else file_text(folder, self._server.registry.options.config_name)}

    def config(self, name: str, version: str, written: Mapping[str, Any] | None) -> dict[str, Any]:
        """The configuration in force and the origin of each field; raises ServingError where nothing serves."""
        record = self._record(name)
        number = _number(record, version)
        model = _serving(record, number)
        if model is None:
            raise NotFoundError(f"model '{name}' does not serve{f' version {number}' if number else ''}")
        in_force = config_in_force(model)
        return {
            "config": in_force,
            "origins": origins(in_force, written, fields_set(model)),
            "is_file_known": written is not None,
        }

    def _record(self, name: str) -> ModelRecord:
        records = self._server.registry.models.named(name)
        if records:
            return next((record for record in records if record.is_wanted), records[0])
        if self.knows(name):
            return ModelRecord(ModelId("", name))
        raise NotFoundError(f"there is no model '{name}'")

    def _serving(self, model: Model, is_newest: bool) -> dict[str, Any]:
        config = model.config
        sequences = config.sequence_batching
        states = self._metrics.workers.states()
        worker_count, up_count, restart_count = states.get((model.name, model.version), (0, 0, 0))
        generation = generation_form(config)
        return {
            "backend": config.backend or config.platform,
            "is_ensemble": config.is_ensemble,
            "is_decoupled": config.is_decoupled,
            "is_sequence": sequences is not None,
            "has_text_ids": sequences is not None and sequences.has_text_ids,
            "max_batch_size": config.max_batch_size,
            "loaded_s": model.loaded_s,
            "load_seconds": model.load_seconds,
            "instances": worker_count or instance_count(config),
            "up": up_count if worker_count else instance_count(config),
            "restarts": restart_count,
            "generates": generation is not None,
            # a conversation names no version, so that the newest answers
            "is_chat": is_newest and generation is not None and config.backend in CHAT_BACKENDS,
            "embeds": embedding_form(config) is not None,
            "picture_input": self._picture_input(model),
            "inputs": [
                {"name": entry.name, "datatype": entry.datatype, "dims": entry.dims, "optional": entry.is_optional}
                for entry in config.inputs.values()
            ],
            "outputs": [
                {"name": entry.name, "datatype": entry.datatype, "dims": entry.dims}
                for entry in config.outputs.values()
            ],
            "labels": {name: list(model.labels(name)[:_MOST_LABELS]) for name in config.outputs if model.labels(name)},
            "steps": [self._step(step) for step in config.ensemble_steps],
        }

    def _devices(self, model: Model) -> dict[str, Any]:
        """The last hour of the accelerators that the model says it runs on, or may run on, by label."""
        history = self._sampler.devices
        groups = [group for group in model.config.instance_groups if group.kind == "KIND_GPU"]
        configured = [f"cuda:{gpu}" for group in groups for gpu in group.gpus]
        labels = dict.fromkeys(self._sampler.devices_of(model) or configured)
        return {label: columns for label in labels if (columns := history.columns_of(label))}

    def _picture_input(self, model: Model) -> str | None:
        try:
            found = self._server.calls.open(model.name, model.version_text).picture_input()
        except ServingError:  # its parameters are not right, which is told to those who send pictures
            return None
        return None if found is None else found.name

    def _step(self, step: EnsembleStepConfig) -> dict[str, Any]:
        """A step of an ensemble, with the means of its model over the last seconds."""
        name, version = step.model_name, step.model_version
        serving = [model for model in self._server.registry.models.serving() if model.name == name]
        wanted = [model for model in serving if version in (-1, model.version)]
        figures = self._sampler.last_figures((name, wanted[-1].version)) if wanted else IDLE
        return {
            "model": name,
            "version": wanted[-1].version_text if wanted else "",
            "inputs": dict(step.input_map),
            "outputs": dict(step.output_map),
            "queue_us": round(figures.queue_us, 1),
            "compute_us": round(figures.input_us + figures.infer_us + figures.output_us, 1),
            "rps": round(figures.requests_per_s, 2),
        }

    def _ensembles(self, name: str) -> list[str]:
        """Those that go out of service with the model: it is a step of theirs, or of one that is."""
        found = [name]
        for known in found:
            records = dependents(self._server.registry.models, known)
            found += [record.id.name for record in records if record.id.name not in found]
        return found[1:]

    def _events(self, key: Key) -> list[dict[str, Any]]:
        events = [event for event in self._metrics.workers.events if (event.model, event.version) == key]
        return [
            {"time_s": event.time_s, "instance": event.instance, "reason": event.reason, "text": _cause(event.text)}
            for event in events[-_MOST_EVENTS:]
        ]


def _cause(report: str) -> str:
    """What a report on a worker's end says in its first line; what the worker printed is for those who may see logs."""
    return report.split("\n")[0].removesuffix(" Its last output:")


def _number(record: ModelRecord, version: str) -> int:
    """The version that is meant: for "" the newest that serves, else the newest of all, 0 where there is none. Raises
    NotFoundError for one that nobody knows and InvalidArgumentError for what is no version."""
    number = parse_version(version)
    if number is None:
        serving = record.ready_models
        return serving[-1].version if serving else max(record.versions, default=0)
    if number not in record.versions:
        raise NotFoundError(f"Request for unknown model: '{record.id.name}' version {number} is not found")
    return number


def _serving(record: ModelRecord, number: int) -> Model | None:
    return next((model for model in record.ready_models if model.version == number), None)
