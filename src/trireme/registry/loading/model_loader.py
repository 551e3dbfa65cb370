"""Loading, reloading and unloading: what happens to a model, its composing models and its ensembles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Set
from contextlib import asynccontextmanager
from pathlib import Path

from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.observe.logs import in_report
from trireme.registry.lifecycle import ModelRecord, PolledModel
from trireme.registry.loading import dependencies
from trireme.registry.loading.interrupted_loads import LoadInterruptedError
from trireme.registry.loading.model_poll import try_poll
from trireme.registry.loading.related_names import RelatedNames
from trireme.registry.loading.version_switch import VersionsFailedError, VersionSwitch
from trireme.registry.options import RegistryOptions
from trireme.registry.repository.load_override import LoadOverride
from trireme.registry.repository.repositories import ModelId, Repositories
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)

MOST_REASON_CHARS = 1000

Plan = dict[ModelId, PolledModel]
Outcome = dict[ModelId, ServingError | None]


class ModelLoader:
    """The operations. Those on related models wait for each other; the failure of one model stays its own."""

    def __init__(
        self, options: RegistryOptions, models: ServedModels, repositories: Repositories, switch: VersionSwitch
    ) -> None:
        self._options = options
        self._models = models
        self._repositories = repositories
        self._switch = switch
        self._exclusive = RelatedNames()
        self._under_way: dict[str, tuple[str, ...]] = {}  # what is being loaded, and what that is made of

    async def load(self, name: str, config_json: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Loads or reloads by name, as the API asks; raises ServingError with the API's texts."""
        override = await self._override(name, config_json, files or {})
        try:
            await self._load(name, override)
        except BaseException:
            if override is not None and override.folder is not None:
                await self._models.drop_unused(override.folder)
            raise

    async def _load(self, name: str, override: LoadOverride | None) -> None:
        names = dependencies.related_names(self._models, name)
        while True:
            async with self._exclusive.hold(names):
                plan = await self._plan(name, override)
                needed = names.union(*(dependencies.related_names(self._models, model_id.name) for model_id in plan))
                if needed <= names:
                    return await self._load_named(name, plan)
            names = needed

    async def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Takes the model and the ensembles that need it out of service; does not wait for their last requests. A load
        of the model that is under way ends, and fails."""
        with self._switch.interruptions.ending(self._loads_for(name)):
            async with self._hold_related({name}):
                self._unload(name, unload_dependents)

    def _unload(self, name: str, unload_dependents: bool) -> None:
        for record in self._models.named(name):
            composing = self._composing(record)
            drains = self._withdraw(record)
            if unload_dependents:
                self._unload_unused(composing, drains)

    def _loads_for(self, name: str) -> set[str]:
        """The model, and those that are being loaded for it alone."""
        names = {name}
        pending = [name]
        while pending:
            for needed in self._under_way.get(pending.pop(), ()):
                if needed not in names and not any(record.is_explicit for record in self._models.named(needed)):
                    names.add(needed)
                    pending.append(needed)
        return names

    def is_at_work_on(self, name: str) -> bool:
        """Whether an operation on the model, or on one that is related to it, is under way."""
        return not self._exclusive.are_free(dependencies.related_names(self._models, name))

    async def remove(self, model_id: ModelId) -> None:
        """Unloads a model whose folder has gone."""
        with self._switch.interruptions.ending({model_id.name}):
            async with self._hold_related({model_id.name}):
                if model_id in self._models.records:
                    self._withdraw(self._models.records[model_id])

    @asynccontextmanager
    async def _hold_related(self, wanted: Set[str]) -> AsyncIterator[None]:
        """Relations may change while one waits for them, so they are looked up again until they did not."""
        names = self._related(wanted)
        while True:
            async with self._exclusive.hold(names):
                present = self._related(wanted)
                if present <= names:
                    yield
                    return
            names = present

    def _related(self, names: Set[str]) -> set[str]:
        return set().union(*(dependencies.related_names(self._models, name) for name in names))

    async def load_all(self, folders: Mapping[ModelId, Path], note: Callable[[Outcome], None]) -> None:
        """Loads many models, composing models first, and notes what becomes of each, or why its folder could not be
        read, as soon as it is known. Models that have nothing to do with each other do not wait for each other."""
        plan, unreadable = await asyncio.to_thread(self._poll_all, folders)
        self._note_polled(folders, unreadable)
        note(unreadable)

        async def load(part: Plan) -> None:
            note(await self._load_part(part))

        async with asyncio.TaskGroup() as group:
            for part in dependencies.parts_of(plan):
                group.create_task(load(part))

    async def _load_part(self, plan: Plan) -> Outcome:
        names = {model_id.name for model_id in plan}
        async with self._hold_related(names.union(*(polled.dependencies for polled in plan.values()))):
            for model_id in plan:
                self._models.record(model_id).is_explicit = True
            return await self._run(plan)

    async def _override(self, name: str, config_json: str | None, files: Mapping[str, bytes]) -> LoadOverride | None:
        try:
            return await asyncio.to_thread(LoadOverride.create, name, config_json, files)
        except (ServingError, OSError, ValueError) as error:  # a path with a null character is a ValueError
            log.error("Poll failed for model directory '%s': %s", name, error)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise _poll_failure(name, reason) from error  # without a path that is none of the client's

    def _poll_all(self, folders: Mapping[ModelId, Path]) -> tuple[Plan, Outcome]:
        plan: Plan = {}
        unreadable: Outcome = {}
        for model_id, folder in folders.items():
            polled = try_poll(self._options, model_id, folder)
            if isinstance(polled, ServingError):
                unreadable[model_id] = polled
            else:
                plan[model_id] = polled
        return plan, unreadable

    async def _plan(self, name: str, override: LoadOverride | None) -> Plan:
        """The model and, for an ensemble, its composing models down to the last; raises where the model itself
        cannot be read."""
        plan: Plan = {}
        seen = {name}
        pending = [name]
        while pending:
            current = pending.pop()
            own = override if current == name else None
            found, unreadable = await asyncio.to_thread(self._poll_name, current, own)
            if own is None:  # what is wrong with files of a request says nothing about the folder
                self._note_polled([known for known in self._models.unreadable if known.name == current], unreadable)
            if current == name and not found:
                raise _poll_failure(
                    name, "; ".join(error.message for error in unreadable.values() if error is not None)
                )
            for polled in found:
                plan[polled.id] = polled
                fresh = [needed for needed in polled.dependencies if needed not in seen]
                seen.update(fresh)
                pending.extend(fresh)
        return plan

    def _poll_name(self, name: str, override: LoadOverride | None) -> tuple[list[PolledModel], Outcome]:
        if override is not None and override.folder is not None:
            folders = {ModelId("", name): override.folder.path}
        else:
            scan = self._repositories.locate(name)
            if name in scan.duplicates:
                log.error("failed to poll model '%s': not unique across all model repositories", name)
            elif not scan.folders:
                log.error("failed to poll model '%s': model not found in any model repository.", name)
            folders = dict(scan.folders)
        found = {model_id: try_poll(self._options, model_id, folder, override) for model_id, folder in folders.items()}
        # With namespacing a name may be several models: all must be readable, or none is touched.
        readable = [polled for polled in found.values() if isinstance(polled, PolledModel)]
        unreadable: Outcome = {key: error for key, error in found.items() if isinstance(error, ServingError)}
        return [] if unreadable else readable, unreadable

    def _note_polled(self, looked_for: Iterable[ModelId], unreadable: Outcome) -> None:
        """What was said before of folders that are gone, or can be read now, holds no longer."""
        for model_id in looked_for:
            self._models.unreadable.pop(model_id, None)
        for model_id, error in unreadable.items():
            if error is not None:
                self._models.unreadable[model_id] = _told(error.message)

    async def _load_named(self, name: str, plan: Plan) -> None:
        for model_id in plan:
            if model_id.name == name:
                self._models.record(model_id).is_explicit = True
        outcome = await self._run(plan)
        errors = [error for model_id, error in outcome.items() if model_id.name == name and error is not None]
        if errors:
            text = "".join(f"load failed for model '{name}': {error.message}\n" for error in errors)
            if any(isinstance(error, VersionsFailedError) and error.was_interrupted for error in errors):
                raise LoadInterruptedError(text)
            raise InvalidArgumentError(text)

    async def _run(self, plan: Plan) -> Outcome:
        """Carries out a plan: composing models before their ensembles, unrelated models side by side."""
        under_way = {model_id.name: polled.dependencies for model_id, polled in plan.items()}
        self._under_way |= under_way
        try:
            return await self._run_plan(plan)
        finally:
            for name in under_way:
                del self._under_way[name]

    async def _run_plan(self, plan: Plan) -> Outcome:
        for model_id in plan:
            self._models.record(model_id).is_wanted = True
        graph = dependencies.graph_of(plan)
        circular = dependencies.circles(graph)
        tasks: dict[ModelId, asyncio.Task[ServingError | None]] = {}

        async def load_after_composing(polled: PolledModel) -> ServingError | None:
            waited = [tasks[needed] for needed in graph[polled.id] if needed not in circular]
            if waited:
                await asyncio.wait(waited)
            return await self._load_one(polled)

        for model_id, text in circular.items():
            self._fail_circular(plan[model_id], text)
        async with asyncio.TaskGroup() as group:
            for model_id, polled in plan.items():
                if model_id not in circular:
                    tasks[model_id] = group.create_task(load_after_composing(polled))
        outcome: Outcome = {model_id: InvalidArgumentError(text) for model_id, text in circular.items()}
        outcome.update({model_id: task.result() for model_id, task in tasks.items()})
        await self._refresh_ensembles(plan)
        return outcome

    async def _load_one(self, polled: PolledModel) -> ServingError | None:
        record = self._models.record(polled.id)
        try:
            if polled.dependencies:
                dependencies.check_available(self._models, polled)
            if not record.is_current(polled) or not self._switch.is_still_linked(record):
                await self._switch.load(record, polled)
        except ServingError as error:
            self._note_failure(record, polled, error)
            return error
        return None

    def _note_failure(self, record: ModelRecord, polled: PolledModel, error: ServingError) -> None:
        record.failure = error.message
        record.failed = polled.stamp
        record.is_invalid = isinstance(error, dependencies.InvalidEnsembleError)
        record.retries = True
        if polled.dependencies:  # a broken ensemble has no old self to fall back on: its parts may be gone
            record.loaded = polled
            self._models.withdraw(record, list(record.versions))
            for life in [record.versions[version] for version in polled.versions if version in record.versions]:
                life.reason = life.failure if isinstance(error, VersionsFailedError) else error.described()
        if not isinstance(error, VersionsFailedError):
            log.error("failed to load model '%s': %s", record.id.name, error.message, extra=in_report(record.id.name))

    def _fail_circular(self, polled: PolledModel, text: str) -> None:
        self._note_failure(self._models.record(polled.id), polled, dependencies.InvalidEnsembleError(text))

    async def _refresh_ensembles(self, changed: Iterable[ModelId]) -> None:
        """Ensembles outside the plan follow their composing models: they come back, or go."""
        pending = [model_id.name for model_id in changed]
        done = set(changed)
        while pending:
            for record in dependencies.dependents(self._models, pending.pop(0)):
                polled = record.loaded
                if record.id in done or polled is None:
                    continue
                done.add(record.id)
                pending.append(record.id.name)
                await self._refresh(record, polled)

    async def _refresh(self, record: ModelRecord, polled: PolledModel) -> None:
        try:
            dependencies.check_available(self._models, polled)
            if not record.ready_models or record.retries or not self._switch.is_still_linked(record):
                await self._switch.load(record, polled)
        except ServingError as error:
            self._note_failure(record, polled, error)

    def _withdraw(self, record: ModelRecord) -> list[asyncio.Task[None]]:
        """Unloads for good; ensembles that need the model leave the service first and end first."""
        record.is_wanted = record.is_explicit = False
        drains = self._withdraw_ensembles(record.id.name, set())
        drains += self._end(record, drains)
        record.forget()
        self._models.unreadable.pop(record.id, None)
        return drains

    def _withdraw_ensembles(self, name: str, seen: set[ModelId]) -> list[asyncio.Task[None]]:
        drains: list[asyncio.Task[None]] = []
        for ensemble in dependencies.dependents(self._models, name):
            if ensemble.id in seen:
                continue
            seen.add(ensemble.id)
            above = self._withdraw_ensembles(ensemble.id.name, seen)
            drains += above + self._end(ensemble, above)
            ensemble.retries = True
        return drains

    def _end(self, record: ModelRecord, after: Iterable[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        """Takes all versions out of service. They end after these tasks, and after ensembles that were taken out of
        service before and still need them for their last requests."""
        ending = [task for model, task in self._models.draining.items() if model.has_step(record.id.name)]
        return self._models.withdraw(record, list(record.versions), [*after, *ending])

    def _composing(self, record: ModelRecord) -> list[ModelRecord]:
        found = (self._models.match(record.id.namespace, name) for name in record.dependencies)
        return [composing for composing in found if composing is not None]

    def _unload_unused(self, composing: Iterable[ModelRecord], drains: list[asyncio.Task[None]]) -> None:
        """Unloads models that were loaded for an ensemble only and that no other ensemble needs."""
        for record in composing:
            if record.is_explicit or not record.is_wanted or dependencies.dependents(self._models, record.id.name):
                continue
            below = self._composing(record)
            record.is_wanted = False
            own = self._end(record, drains)
            record.forget()
            self._unload_unused(below, drains + own)


def _poll_failure(name: str, reason: str) -> InternalError:
    """Triton's text, with what it says in its log alone behind it; nothing of a model that no repository has."""
    behind = f": {_told(reason)}" if reason else ""
    return InternalError(f"failed to load '{name}', failed to poll from model repository{behind}")


def _told(reason: str) -> str:
    """What clients are told of it, also in each index: it may repeat words of a file or a request of any length."""
    return reason if len(reason) <= MOST_REASON_CHARS else f"{reason[:MOST_REASON_CHARS]} ..."
