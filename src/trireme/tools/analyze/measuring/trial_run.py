"""A whole trial: every load of it at the same time, with the machine watched."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TypeVar, cast

from trireme.tools.analyze.errors import InputError, MeasurementError, PromptTooLongError
from trireme.tools.analyze.measuring.batch_times import Counts, batches_between, read_batches
from trireme.tools.analyze.measuring.load_point import LoadPoint, measured
from trireme.tools.analyze.options import MeasuringOptions
from trireme.tools.analyze.server.resources import Resources, ResourceWatch
from trireme.tools.analyze.trial import Load, Measured, Result, Trial
from trireme.tools.client.errors import ClientError
from trireme.tools.client.port import ServerClient
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.process import LoadState
from trireme.tools.perf.measure.interruption import Interruption

T = TypeVar("T")
_PROMPT_FLAGS = ("--isl", "--synthetic-input-tokens-mean", "--input-file")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """How a model is put under load."""

    name: str
    words: tuple[str, ...]
    """For the load generator: protocol, address, and the user's flags."""
    is_language_model: bool = False


class TrialRunner:
    """Measures trials on a server whose models are configured already; raises InputError, MeasurementError."""

    def __init__(
        self,
        client: ServerClient,
        models: Sequence[LoadedModel],
        measuring: MeasuringOptions,
        watch: ResourceWatch | None,
        interruption: Interruption,
        on_state: Callable[[LoadState], None],
        tell: Callable[[str], None],
    ) -> None:
        self._client = client
        self._models: Mapping[str, LoadedModel] = {model.name: model for model in models}
        self._measuring = measuring
        self._watch = watch
        self._interruption = interruption
        self._on_state = on_state
        self._tell = tell
        self._prompt_words: dict[str, tuple[str, ...]] = {}
        """By language model: what makes prompts that it has room for."""

    def run(self, trial: Trial, is_probe: bool) -> Result:
        """One result per load."""
        began = time.monotonic()
        try:
            if any(self._models[load.model].is_language_model for load in trial.loads):
                found = self._watched(trial, lambda: self._language_models(trial, is_probe))
            else:
                found = self._points(trial, is_probe)
        except PerfError as error:  # of the load itself
            raise MeasurementError(str(error).strip()) from None
        return Result(trial, tuple(found), time.monotonic() - began, is_probe)

    def _language_models(self, trial: Trial, is_probe: bool) -> list[Measured]:
        if len(trial.loads) > 1:
            raise MeasurementError("language models are measured one at a time")
        load = trial.loads[0]
        try:
            return [self._language_model(load, is_probe)]
        except PromptTooLongError as error:
            self._shorten(load.model, error)
        return [self._language_model(load, is_probe)]

    def _language_model(self, load: Load, is_probe: bool) -> Measured:
        from trireme.tools.analyze.measuring.llm_point import measure_llm  # has the tokenizers, which others wait for

        return measure_llm(
            load,
            (*self._models[load.model].words, *self._prompt_words.get(load.model, ())),
            timeout_s=self._measuring.timeout_s,
            is_probe=is_probe,
            interruption=self._interruption,
            on_state=self._on_state,
        )

    def _shorten(self, model: str, error: PromptTooLongError) -> None:
        """From now on prompts that fit; raises InputError where the user has chosen theirs."""
        if any(flag in self._models[model].words for flag in _PROMPT_FLAGS):
            raise InputError(
                f"{error}\nprompts are as the configuration file says: 'isl: {error.fitting}' under genai_perf_flags "
                "makes shorter ones"
            )
        self._prompt_words[model] = ("--isl", str(error.fitting))
        self._tell(f"{model}: prompts of {error.fitting} words, as the usual ones are too long for it")

    def _points(self, trial: Trial, is_probe: bool) -> list[Measured]:
        with contextlib.ExitStack() as ended:
            points = []
            for load in trial.loads:
                point = LoadPoint(load, self._models[load.model].words, self._measuring)
                ended.callback(self._stop, point)
                points.append(point)
            timeout_s = self._measuring.timeout_s
            latencies = _each(points, lambda point: point.warm_up(self._interruption, timeout_s, is_probe))
            by_point = dict(zip(map(id, points), latencies, strict=True))

            def measure(point: LoadPoint) -> Measured:
                summary, is_stable = point.measure(self._interruption, by_point[id(point)], is_probe, self._on_state)
                return measured(point.load.model, summary, is_stable)

            return self._watched(trial, lambda: _each(points, measure))

    def _stop(self, point: LoadPoint) -> None:
        point.stop(self._interruption.is_set)

    def _watched(self, trial: Trial, act: Callable[[], list[Measured]]) -> list[Measured]:
        models = [model for model, _ in trial.settings] or [load.model for load in trial.loads]
        before = self._batches(models)
        if self._watch is not None:
            self._watch.start()
        try:
            found = act()
        except BaseException:
            if self._watch is not None:
                self._watch.cancel()
            raise
        resources = self._watch.stop() if self._watch is not None else Resources()
        after = self._batches(models)
        return [self._completed(one, trial.loads, resources, before, after) for one in found]

    def _completed(
        self,
        one: Measured,
        loads: Sequence[Load],
        resources: Resources,
        before: Mapping[str, Counts],
        after: Mapping[str, Counts],
    ) -> Measured:
        metrics = {**one.metrics, **resources.machine}
        for tag in ("gpu_used_memory", "gpu_free_memory", "gpu_power_usage"):
            values = [device[tag] for device in resources.devices.values() if tag in device]
            if values:
                metrics[tag] = sum(values)
        busy = [device["gpu_utilization"] for device in resources.devices.values() if "gpu_utilization" in device]
        if busy:
            metrics["gpu_utilization"] = sum(busy) / len(busy)
        batches = {model: batches_between(counts, after.get(model, {})) for model, counts in before.items()}
        own, inner = batches.pop(one.model, ()), tuple(batches.items()) if len(loads) == 1 else ()
        return replace(one, metrics=metrics, devices=resources.devices, batches=own, inner_batches=inner)

    def _batches(self, models: Sequence[str]) -> dict[str, Counts]:
        found = {}
        for model in models:
            with contextlib.suppress(ClientError):
                found[model] = read_batches(self._client.statistics(model, ""))
        return found


def _each(points: Sequence[LoadPoint], act: Callable[[LoadPoint], T]) -> list[T]:
    """At the same time; the first failure is raised when all are done. Whoever is interrupted meanwhile waits for none
    of them: a server that stands still would hold them for as long as an answer may take."""
    if len(points) == 1:
        return [act(points[0])]
    ended: SimpleQueue[tuple[int, T | None, BaseException | None]] = SimpleQueue()

    def run(number: int) -> None:
        try:
            ended.put((number, act(points[number]), None))
        except BaseException as error:  # raised where it is waited for
            ended.put((number, None, error))

    for number in range(len(points)):
        threading.Thread(target=run, args=[number], name=f"load-{number}", daemon=True).start()
    results = sorted((ended.get() for _ in points), key=lambda entry: entry[0])
    for _, _, error in results:
        if error is not None:
            raise error
    return cast(list[T], [found for _, found, _ in results])
