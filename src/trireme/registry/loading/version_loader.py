"""Turns one version of a polled model into a model that can serve."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trireme.backends.catalog import ModelSource
from trireme.config.load import finalize_config
from trireme.config.load_timeout import load_timeout_s, took_too_long
from trireme.config.message import ConfigMessage
from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.config.validation.tensors import repeated_tensor_problems
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError, UnsupportedError
from trireme.core.ports import Backend, InferencePort
from trireme.huggingface.adapters import PARAMETER as ADAPTERS
from trireme.huggingface.adapters import find_adapters_folder
from trireme.machine.regular_files import read_regular
from trireme.observe.logs import in_report
from trireme.observe.stats import ModelStats
from trireme.registry.lifecycle import PolledModel
from trireme.registry.loading.interrupted_loads import Interruptions
from trireme.registry.loading.load_slots import LoadSlots
from trireme.registry.loading.warmup import WarmupGate, warm_up
from trireme.registry.model import Model
from trireme.registry.options import RegistryOptions
from trireme.scheduling.answer_round import AnswerRound
from trireme.scheduling.cache.front import ResponseCacheFront
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler
from trireme.scheduling.rate_limiter import InstanceGate, RateLimiter
from trireme.scheduling.rate_limiter_resources import instance_limits
from trireme.scheduling.scheduler import InstanceScheduler, create_scheduler

log = logging.getLogger(__name__)

Result = TypeVar("Result")
BackendFactory = Callable[[ModelSource], Backend]
EnsembleLink = Callable[[ConfigMessage], tuple[ConfigMessage, Mapping[str, Sequence[str]]]]
"""Ties an ensemble's message to its composing models: the message as they make it, and the labels they pass on.
Raises ServingError where it does not fit them."""


class VersionLoader:
    """Loads versions, a limited number of them at a time."""

    def __init__(
        self,
        options: RegistryOptions,
        backend_factory: BackendFactory,
        response_cache: ResponseCacheFront | None = None,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._options = options
        self._create_backend = backend_factory
        self._cache = response_cache
        self._limiter = rate_limiter
        self._slots = LoadSlots(options.load_concurrency, options.load_slot_s)
        self.interruptions = Interruptions()
        self._answer_round = AnswerRound()  # of all models together

    async def load(self, polled: PolledModel, version: int, inference: InferencePort, link: EnsembleLink) -> Model:
        """A model that can serve; raises ServingError when the last try has failed, or the model is unloaded."""
        return await self.interruptions.run(polled.id.name, self._load_in_turn(polled, version, inference, link))

    async def resize(self, polled: PolledModel, backend: Backend, config: ModelConfig) -> None:
        """Gives a loaded model the instances of this configuration, within the limits of a load."""
        resize = self._within_time(polled, backend.resize(config))
        await self.interruptions.run(polled.id.name, resize)

    async def _load_in_turn(
        self, polled: PolledModel, version: int, inference: InferencePort, link: EnsembleLink
    ) -> Model:
        async with self._slots.hold(polled.id.name):
            for retries_left in range(max(0, self._options.load_retry_count), -1, -1):
                try:
                    return await self._within_time(polled, self._try_load(polled, version, inference, link))
                except ServingError as error:
                    text = "failed to load '%s' version %d: %s"
                    log.error(text, polled.id.name, version, error.described(), extra=in_report(polled.id.name))
                    if not retries_left:
                        raise
            raise AssertionError("the last try returns or raises")

    async def _within_time(self, polled: PolledModel, load: Coroutine[Any, Any, Result]) -> Result:
        """Raises ServingError where it takes longer than the model may; nothing is left of the load then."""
        try:
            limit_s = load_timeout_s(polled.message, self._options.load_timeout_s)
        except ServingError:
            load.close()
            raise
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await load
        except TimeoutError:
            if limit_s is None or not limit.expired():
                raise
            raise took_too_long(limit_s) from None

    async def _try_load(self, polled: PolledModel, version: int, inference: InferencePort, link: EnsembleLink) -> Model:
        log.info("loading: %s:%d", polled.id.name, version)
        started = time.monotonic()
        try:
            if polled.message.platform == "ensemble":
                model = await self._load_ensemble(polled, version, inference, link)
            else:
                model = await self._load_backend(polled, version)
        except ServingError:
            raise
        except Exception as error:
            log.exception("unexpected failure while loading '%s' version %d", polled.id.name, version)
            raise InternalError(f"{type(error).__name__}: {error}") from error
        model.load_seconds = time.monotonic() - started
        return model

    async def _load_ensemble(
        self, polled: PolledModel, version: int, inference: InferencePort, link: EnsembleLink
    ) -> Model:
        message, inherited = link(finalize_config(polled.message, self._options.gpu_count))
        config = ModelConfig.from_message(message)
        _warn_of_repeated_tensors(config)
        labels = {**inherited, **await asyncio.to_thread(read_labels, config, polled.folder)}
        stats = ModelStats(config.name, version)
        scheduler = create_scheduler(config, stats, inference=inference)
        model = Model(polled.id, version, config, scheduler, stats, labels=labels, folder=_keeper(polled))
        await self._put_cache_before(scheduler, model, polled.folder / str(version))
        return model

    async def _load_backend(self, polled: PolledModel, version: int) -> Model:
        version_dir = polled.folder / str(version)
        source = ModelSource(polled.id.name, version, polled.folder, version_dir, copy.deepcopy(polled.message))
        backend = self._create_backend(source)
        limits: InstanceGate | None = None
        try:
            completed = await backend.complete_config()
            config = ModelConfig.from_message(finalize_config(completed, self._options.gpu_count))
            _warn_of_no_tensors(config, polled.folder)
            _warn_of_repeated_tensors(config)
            labels = await asyncio.to_thread(read_labels, config, polled.folder)
            stats = ModelStats(config.name, version)
            gate = WarmupGate()
            defer = gate if config.message.model_warmup else None
            scheduler = create_scheduler(config, stats, defer=defer, folder=polled.folder)
            # Asked of the concrete class: a compiled abstract one does not answer interpreted code reliably.
            assert not isinstance(scheduler, EnsembleScheduler), "none is made without a way to run its steps"
            scheduler.share(self._answer_round)
            limits = self._limit(scheduler, config)
            await backend.start(config, scheduler)
            model = Model(polled.id, version, config, scheduler, stats, backend, labels, _keeper(polled), limits)
            if config.backend == "llm" and ADAPTERS in config.parameters:
                found = (config.parameters[ADAPTERS], polled.folder, str(version))
                model.adapters_folder = await asyncio.to_thread(find_adapters_folder, *found)
            await warm_up(model, polled.folder, gate)
            await self._put_cache_before(scheduler, model, version_dir)
        except BaseException as error:  # also a cancelled load leaves no process behind
            if limits is not None:
                limits.close()
            await asyncio.shield(_stop(backend, is_abandoned=isinstance(error, asyncio.CancelledError)))
            raise
        return model

    async def _put_cache_before(
        self, scheduler: InstanceScheduler | EnsembleScheduler, model: Model, version_dir: Path
    ) -> None:
        """After the warm-up, which is to run on the instances."""
        if self._cache is not None:
            model.scheduler = await self._cache.before(scheduler, model.config, model.stats, version_dir)

    def _limit(self, scheduler: InstanceScheduler, config: ModelConfig) -> InstanceGate | None:
        if self._limiter is None:
            return None
        gate = self._limiter.gate(instance_limits(config))
        scheduler.limit(gate)
        return gate


def _warn_of_no_tensors(config: ModelConfig, folder: Path) -> None:
    """A model that takes nothing and gives nothing is rarely meant."""
    if not config.inputs and not config.outputs:
        other = ", or add them in auto_complete_config of its model.py" if config.backend == "python" else ""
        log.warning(
            "'%s' has neither inputs nor outputs: write them into %s%s", config.name, folder / "config.pbtxt", other
        )


def _warn_of_repeated_tensors(config: ModelConfig) -> None:
    for problem in repeated_tensor_problems(config.message):
        log.warning("%s; %s", problem.text, problem.advice)


def read_labels(config: ModelConfig, folder: Path) -> dict[str, Sequence[str]]:
    """The lines of every label file of the outputs."""
    return {output.name: read_label_file(output, folder) for output in config.outputs.values() if output.label_filename}


def read_label_file(output: TensorConfig, folder: Path) -> Sequence[str]:
    """Raises ServingError where the file cannot be read, or is not in the model's folder."""
    if "\0" in output.label_filename:
        raise InvalidArgumentError(f"label file of output '{output.name}' must not contain a null character")
    path = Path(os.path.realpath(folder / output.label_filename))  # which no link to itself ends
    if not path.is_relative_to(os.path.realpath(folder)):
        raise UnsupportedError(
            f"label file '{output.label_filename}' of output '{output.name}' must stay within model directory"
        )
    try:
        return read_regular(path).decode("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise InvalidArgumentError(f"failed to read label file '{path}': {error.strerror}") from error


def _keeper(polled: PolledModel) -> object:
    return polled.override.folder if polled.override is not None else None


async def _stop(backend: Backend, *, is_abandoned: bool) -> None:
    """A load that is not wanted any more may hang in its warm-up."""
    try:
        await (getattr(backend, "abandon", backend.stop) if is_abandoned else backend.stop)()
    except Exception:
        log.exception("failed to stop a backend whose load failed")
