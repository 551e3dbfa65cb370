"""From the copies that serve to the copies that shall: loads all versions, then puts them in place at once."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Mapping, Sequence

from trireme.config.completion import instance_only_change
from trireme.config.load import finalize_config
from trireme.config.message import ConfigMessage
from trireme.config.model_config import ModelConfig
from trireme.config.validation.model_folder import version_advice
from trireme.config.version_policy import versions_in
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.registry.lifecycle import UNLOADED_REASON, ModelRecord, PolledModel
from trireme.registry.loading.ensemble_link import link_ensemble
from trireme.registry.loading.interrupted_loads import LoadInterruptedError
from trireme.registry.loading.replacement import Replacements
from trireme.registry.loading.version_loader import VersionLoader
from trireme.registry.model import Model, ModelInference
from trireme.registry.options import RegistryOptions
from trireme.registry.served_models import ServedModels
from trireme.registry.step_inference import StepInference
from trireme.scheduling.rate_limiter_resources import instance_limits

log = logging.getLogger(__name__)

_INTERRUPTION = InternalError("the load was interrupted")


class VersionsFailedError(InvalidArgumentError):
    """Versions of a model failed to load; each of them is in the log already."""

    was_interrupted = False
    """Whether they did because the model was unloaded meanwhile."""


class VersionSwitch:
    """Loads a polled model. Until everything is loaded nothing changes for those who use the model."""

    inference: ModelInference
    """Set by the registry's owner before the first load."""

    def __init__(self, options: RegistryOptions, models: ServedModels, loader: VersionLoader) -> None:
        self._options = options
        self._models = models
        self._loader = loader
        self.interruptions = loader.interruptions
        self._replacements = Replacements(options.on_demand, models, lambda: self.inference)
        self.end_old_copy = self._replacements.end_old_copy
        """`end_old_copy(name)` ends the copies of a model that the load under way replaces, because old and new cannot
        live at the same time; whether there are any. Requests wait until the new ones are ready."""

    async def load(self, record: ModelRecord, polled: PolledModel) -> None:
        """Brings the model to what was polled; raises ServingError and leaves what served in service."""
        if not polled.versions:
            raise InvalidArgumentError(await asyncio.to_thread(_no_version_text, polled))
        loaded = record.loaded
        if loaded is not None and _is_update(record, loaded, polled):
            await self._update(record, loaded, polled)
        else:
            await self._replace(record, polled, polled.versions)
        self._models.withdraw(record, [version for version in record.versions if version not in polled.versions])
        record.forget()
        record.loaded = polled
        record.is_temporary = polled.stamp is None
        log.info("successfully loaded '%s'", polled.id.name)

    def is_still_linked(self, record: ModelRecord) -> bool:
        """Whether a loaded ensemble is what its composing models, which may have changed, make it; true for any
        other model. Raises ServingError where it no longer fits them."""
        return all(
            link_ensemble(model.config.message, self._composing(record, model.config.message))[0]
            == model.config.message
            for model in record.ready_models
            if model.config.is_ensemble
        )

    async def _replace(self, record: ModelRecord, polled: PolledModel, versions: Sequence[int]) -> None:
        ending = [version for version in record.versions if version in versions or version not in polled.versions]
        for version in versions:
            record.life(version).begin_loading()
        with self._replacements.replacing(record, versions, ending) as replacement:
            failure = await self._try_replace(record, polled, versions)
            if failure is None:
                return
            log.info("failed to load '%s'", polled.id.name)
            if replacement.gone and not failure.was_interrupted:
                record.refused = polled.stamp
                failure = replacement.failure = await self._bring_back(record, replacement.gone, failure)
        raise failure

    async def _try_replace(
        self, record: ModelRecord, polled: PolledModel, versions: Sequence[int]
    ) -> VersionsFailedError | None:
        """Loads the versions and puts them in place, or ends them all again and says why."""
        results = await self._load_versions(record, polled, versions)
        failures = {version: result for version, result in results.items() if isinstance(result, ServingError)}
        if failures:
            self._give_up(record, versions, results)
            failed = VersionsFailedError("".join(_failure_text(*failure) for failure in failures.items()))
            failed.was_interrupted = any(isinstance(error, LoadInterruptedError) for error in failures.values())
            return failed
        self._models.install(record, [model for model in results.values() if isinstance(model, Model)])
        return None

    async def _bring_back(
        self, record: ModelRecord, versions: Sequence[int], failure: VersionsFailedError
    ) -> VersionsFailedError:
        """Loads the copies that made way for nothing once more, as they were configured; what became of it."""
        previous = record.loaded
        assert previous is not None, "what served was loaded"
        for version in versions:
            record.life(version).begin_loading()
        results = await self._load_versions(record, previous, versions)
        models = [model for model in results.values() if isinstance(model, Model)]
        if models:
            self._models.install(record, models)
        errors = ""
        for version in versions:
            result, life = results[version], record.life(version)
            if isinstance(result, ServingError):
                errors += _failure_text(version, result)
                life.fail(life.failure or result.described())
            else:
                life.reason = f"the previous copy was loaded again, because its replacement failed: {failure.message}"
        if errors:
            return VersionsFailedError(f"{failure.message} the previous copy could not be loaded again: {errors}")
        numbers = ", ".join(map(str, versions))
        log.warning("the previous copy of '%s' version %s was loaded again and serves", record.id.name, numbers)
        return VersionsFailedError(f"{failure.message} the previous copy, version {numbers}, was loaded again")

    async def _load_versions(
        self, record: ModelRecord, polled: PolledModel, versions: Sequence[int]
    ) -> dict[int, Model | ServingError]:
        results: dict[int, Model | ServingError] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for version in versions:
                    group.create_task(self._load_version(record, polled, version, results))
        except BaseException:  # the server stops: what is loaded already is ended, the rest ended itself
            self._give_up(record, versions, results)
            raise
        return {version: results[version] for version in versions}

    async def _load_version(
        self, record: ModelRecord, polled: PolledModel, version: int, results: dict[int, Model | ServingError]
    ) -> None:
        port = StepInference(self._models, polled.id.namespace, self.inference)

        def link(message: ConfigMessage) -> tuple[ConfigMessage, Mapping[str, Sequence[str]]]:
            return link_ensemble(message, self._composing(record, message))

        try:
            results[version] = await self._loader.load(polled, version, port, link)
        except ServingError as error:
            results[version] = error

    def _give_up(
        self, record: ModelRecord, versions: Sequence[int], results: Mapping[int, Model | ServingError]
    ) -> None:
        """All versions serve, or none of them does: those that did load are ended again."""
        for version in versions:
            result = results.get(version, _INTERRUPTION)
            if isinstance(result, Model):
                self._models.discard(record, result)
                record.life(version).fail(UNLOADED_REASON)
            else:
                record.life(version).fail(result.described())

    async def _update(self, record: ModelRecord, loaded: PolledModel, polled: PolledModel) -> None:
        """Instance groups, the version policy or the files of some versions changed, nothing else: versions whose
        files are as they were stay loaded."""
        kept = [model for model in record.ready_models if _is_kept(model.version, loaded, polled)]
        stale = set(polled.versions).difference(model.version for model in kept)
        if stale:
            await self._replace(record, polled, sorted(stale))
        for model in kept:
            await self._resize(model, polled)

    async def _resize(self, model: Model, polled: PolledModel) -> None:
        message = copy.deepcopy(model.config.message)
        message.ClearField("instance_group")
        message.instance_group.extend(polled.message.instance_group)
        message.version_policy.CopyFrom(polled.message.version_policy)
        config = ModelConfig.from_message(finalize_config(message, self._options.gpu_count))
        if model.gate is not None:
            model.gate.change(instance_limits(config))
        try:
            if model.backend is not None and config.message.instance_group != model.config.message.instance_group:
                await self._loader.resize(polled, model.backend, config)
        except BaseException:
            if model.gate is not None:
                model.gate.change(instance_limits(model.config))
            raise
        model.config = config

    def _composing(self, record: ModelRecord, message: ConfigMessage) -> list[Model]:
        """The model of every step."""
        steps = message.ensemble_scheduling.step
        versions = ("" if step.model_version == -1 else str(step.model_version) for step in steps)
        return [
            self._models.find_step(record.id.namespace, step.model_name, version)
            for step, version in zip(steps, versions, strict=True)
        ]


def _no_version_text(polled: PolledModel) -> str:
    text = f"at least one version must be available under the version policy of model '{polled.id.name}'"
    advice = "" if versions_in(polled.folder) else version_advice(polled.folder)
    return f"{text}: {advice}" if advice else text


def _failure_text(version: int, error: object) -> str:
    described = error.described() if isinstance(error, ServingError) else str(error)
    return f"version {version} is at UNAVAILABLE state: {described};"


def _is_update(record: ModelRecord, loaded: PolledModel, polled: PolledModel) -> bool:
    """Whether the configuration changed in nothing but instances and versions, and no other file did but those of
    versions."""
    if record.retries or loaded.folder != polled.folder or loaded.stamp is None or polled.stamp is None:
        return False
    if not record.ready_models or polled.dependencies or not loaded.stamp.content.is_same_as(polled.stamp.content):
        return False
    return instance_only_change(loaded.message, polled.message)


def _is_kept(version: int, loaded: PolledModel, polled: PolledModel) -> bool:
    """Whether the version is still wanted and its folder did not change."""
    if loaded.stamp is None or polled.stamp is None or version not in polled.versions:
        return False
    return polled.stamp.has_same_version(loaded.stamp, version) or not (
        version in polled.stamp.versions or version in loaded.stamp.versions
    )
