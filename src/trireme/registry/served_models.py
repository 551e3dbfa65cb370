"""The table of models: who serves under which name and version, and who finishes its last requests."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trireme.config.nearest import meant
from trireme.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    ServingError,
    UnavailableError,
    stopping_error,
)
from trireme.observe.metrics import MetricsRegistry
from trireme.registry.lifecycle import READY, ModelRecord
from trireme.registry.metric_labels import histogram_buckets, metric_labels
from trireme.registry.model import Model
from trireme.registry.repository.load_override import TemporaryFolder
from trireme.registry.repository.repositories import ModelId

log = logging.getLogger(__name__)

_LEADING_INTEGER: Final = re.compile(r"\s*([+-]?\d+)")
_MAX_VERSION: Final = 2**63 - 1
_MAX_VERSION_CHARS: Final = 4000  # more than that Python does not convert


class ServedModels:
    """Owns the records and the routes; every change of a route happens here, between two turns of the loop."""

    def __init__(self, metrics: MetricsRegistry, has_namespacing: bool) -> None:
        self.records: dict[ModelId, ModelRecord] = {}
        self.unreadable: dict[ModelId, str] = {}  # why a folder could not be read when its model was last to be loaded
        self.draining: dict[Model, asyncio.Task[None]] = {}
        self.on_install: list[Callable[[str], None]] = []  # told the name of a model that has been put in place
        self.on_retire: Callable[[Model], None] | None = None  # told of a model that takes no further request
        self.on_change: Callable[[], None] | None = None  # told when a model has come, begins to end, or has ended
        self.reloading: dict[str, Callable[[str], Model]] = {}
        """By the name of a model that is out of service while its next copy loads: the placeholder for a version, at
        which requests wait."""
        self._metrics = metrics
        self._has_namespacing = has_namespacing
        self._lingering: list[Model] = []  # out of service, and there for the last requests of ensembles alone
        self.is_stopped = False
        """The server ends: models that were known do not serve any more, and will not."""
        self._routes: dict[str, dict[str, Model]] = {}  # name to version as asked for ("" is the newest) to model

    def find(self, name: str, version: str) -> Model:
        """The model that serves; raises the error that says why there is none."""
        try:
            return self._routes[name][version]
        except KeyError:
            return self._resolve(name, version)

    def find_to_infer(self, name: str, version: str) -> Model:
        """The same for inference: a placeholder where the model is being reloaded and its old copy had to go first."""
        try:
            return self._routes[name][version]
        except KeyError:
            if name in self.reloading:
                parse_version(version)
                return self.reloading[name](version)
            return self._resolve(name, version)

    def find_step(self, namespace: str, name: str, version: str) -> Model:
        """The same for a step of an ensemble: a model beside the ensemble is preferred, and one that an unload of
        both has already taken away still serves the ensemble's last requests."""
        if namespace:
            record = self.records.get(ModelId(namespace, name))
            for model in reversed(record.ready_models if record is not None else []):
                if version in ("", model.version_text):
                    return model
        try:
            return self.find_to_infer(name, version)
        except ServingError:
            for model in reversed(self._lingering):
                if model.name == name and version in ("", model.version_text):
                    return model
            raise

    def serving(self) -> Iterator[Model]:
        """Every model that serves, by name and version."""
        for model_id in sorted(self.records, key=lambda model_id: (model_id.name, model_id.namespace)):
            yield from self.records[model_id].ready_models

    def record(self, model_id: ModelId) -> ModelRecord:
        """What is known of the model, which is known from now on."""
        if model_id not in self.records:
            self.records[model_id] = ModelRecord(model_id)
        return self.records[model_id]

    def named(self, name: str) -> list[ModelRecord]:
        """Every record under this name: several only with namespacing."""
        return [record for model_id, record in self.records.items() if model_id.name == name]

    def problem_of(self, name: str) -> str:
        """Why the folder of this name could not be read when its model was last to be loaded; "" where it could."""
        return next((text for model_id, text in self.unreadable.items() if model_id.name == name), "")

    def match(self, namespace: str, name: str) -> ModelRecord | None:
        """The record a step means: the one beside the ensemble, or the only one of that name that is wanted."""
        beside = self.records.get(ModelId(namespace, name))
        if beside is not None and beside.is_wanted:
            return beside
        wanted = [record for record in self.named(name) if record.is_wanted]
        return wanted[0] if len(wanted) == 1 else None

    def install(self, record: ModelRecord, models: Iterable[Model]) -> None:
        """Puts loaded versions in place at once; the copies they replace finish their requests and end."""
        for model in models:
            replaced = record.life(model.version).become_ready(model)
            if replaced is not None:
                self._retire(record, replaced, ())
            self._metrics.add_model(
                model.stats,
                metric_labels(model),
                model.load_seconds,
                histogram_buckets(model.config),
                has_cache=model.config.has_response_cache,
            )
        self._route(record.id.name)
        for note in self.on_install:
            note(record.id.name)
        self._note_change()

    def withdraw(
        self, record: ModelRecord, versions: Iterable[int], after: Iterable[asyncio.Task[None]] = ()
    ) -> list[asyncio.Task[None]]:
        """Takes versions out of service; they end once they, and before them the tasks given, are done."""
        retired = [record.versions[version].begin_unloading() for version in versions]
        self._route(record.id.name)
        return [self._retire(record, model, tuple(after)) for model in retired if model is not None]

    def discard(self, record: ModelRecord, model: Model) -> None:
        """Ends a model that loaded and was never put in place."""
        self._end(record, model, ())

    def _retire(self, record: ModelRecord, model: Model, after: tuple[asyncio.Task[None], ...]) -> asyncio.Task[None]:
        model.is_serving = False
        if self.on_retire is not None:
            self.on_retire(model)
        self._metrics.remove_model(model.stats)
        return self._end(record, model, after)

    def _end(self, record: ModelRecord, model: Model, after: tuple[asyncio.Task[None], ...]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._drain(record, model, after))
        self.draining[model] = task
        if after:
            self._lingering.append(model)
        self._note_change()
        return task

    async def _drain(self, record: ModelRecord, model: Model, after: tuple[asyncio.Task[None], ...]) -> None:
        try:
            if after:
                try:
                    await asyncio.wait(after)
                finally:
                    self._lingering.remove(model)
            await model.stop()
            log.info("successfully unloaded '%s' version %d", model.name, model.version)
        except Exception:
            log.exception("failed to unload '%s' version %d", model.name, model.version)
        finally:
            self.draining.pop(model, None)
            record.life(model.version).finish_unloading(model)
            if record.is_temporary and not record.is_wanted and record.is_idle:
                self.records.pop(record.id, None)  # in no repository: nothing is left of it
            self._note_change()
        if isinstance(model.folder, TemporaryFolder):
            await self.drop_unused(model.folder)

    async def drop_unused(self, folder: TemporaryFolder) -> None:
        """Removes the files of a load, where no model runs from them and none will."""
        loaded = [record.loaded.override for record in self.records.values() if record.loaded is not None]
        kept: list[object] = [override.folder for override in loaded if override is not None]
        kept += [model.folder for model in (*self.serving(), *self.draining)]
        if all(other is not folder for other in kept):
            await asyncio.to_thread(folder.remove)

    def _note_change(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _route(self, name: str) -> None:
        wanted = [record for record in self.named(name) if record.is_wanted or record.ready_models]
        routes: dict[str, Model] = {}
        if len(wanted) == 1:
            for model in wanted[0].ready_models:
                model.is_serving = True
                routes[model.version_text] = routes[""] = model
        else:
            for record in wanted:
                for model in record.ready_models:
                    model.is_serving = True
        if routes:
            self._routes[name] = routes
        else:
            self._routes.pop(name, None)

    def _resolve(self, name: str, version: str) -> Model:
        number = parse_version(version)
        record = self._only_record(name)
        models = record.ready_models
        if self.is_stopped:
            raise stopping_error("")
        if name in self.reloading and not models:
            raise UnavailableError(
                f"model '{name}' is being reloaded: its old copy ended because the new one needs its device; try again"
            )
        if number is None:
            if not models:
                raise NotFoundError(f"Request for unknown model: '{name}' has no available versions")
            return models[-1]
        life = record.versions.get(number)
        if life is None:
            raise NotFoundError(f"Request for unknown model: '{name}' version {number} is not found")
        if life.state != READY or life.model is None:
            raise NotReadyError(f"Request for unknown model: '{name}' version {number} is not at ready state")
        return life.model

    def _only_record(self, name: str) -> ModelRecord:
        records = self.named(name)
        if not records:
            names = [record.id.name for record in self.records.values() if record.ready_models]
            message = f"Request for unknown model: '{name}' is not found{meant(name, names)}"
            raise InvalidArgumentError(message) if self._has_namespacing else NotFoundError(message)
        wanted = [record for record in records if record.is_wanted] or records[:1]
        if len(wanted) > 1:
            raise InvalidArgumentError(
                f"There are {len(wanted)} identifiers of model '{name}' in global map, "
                "model namespace must be provided to resolve ambiguity."
            )
        return wanted[0]


def parse_version(version: str) -> int | None:
    """The number a version string begins with; None for "", the newest. Raises ServingError for anything else."""
    if not version:
        return None
    match = _LEADING_INTEGER.match(version)
    number = int(match.group(1)) if match is not None and len(match.group(1)) <= _MAX_VERSION_CHARS else None
    if number is None or abs(number) > _MAX_VERSION:
        raise InvalidArgumentError(
            f"failed to get model version from specified version string '{version}' (details: stol), "
            "version should be an integral value > 0"
        )
    if number < 0:
        raise InvalidArgumentError(
            f"invalid model version specified '{version}' , version should be an integral value > 0"
        )
    return number
