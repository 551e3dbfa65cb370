"""Measures a model under one load, with the load generator of `trireme perf` as a library."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from trireme.tools.analyze.errors import InputError, Interrupted, MeasurementError
from trireme.tools.analyze.options import MeasuringOptions
from trireme.tools.analyze.trial import Load, Measured
from trireme.tools.perf.command_line.reading import make_parser, read_options
from trireme.tools.perf.control.connect import connect
from trireme.tools.perf.errors import OPTION_ERROR, PerfError
from trireme.tools.perf.load.process import LoadProcess, LoadState
from trireme.tools.perf.load.schedules import LoadLevel, Schedule
from trireme.tools.perf.measure.interruption import Interruption
from trireme.tools.perf.measure.level import LevelResult, Measurement
from trireme.tools.perf.measure.server_stats import ServerStats
from trireme.tools.perf.measure.stability import WINDOWS
from trireme.tools.perf.measure.window import Summary
from trireme.tools.perf.options import LoadMode, MeasurementOptions, PerfOptions, Range
from trireme.tools.perf.preparation import prepare_load
from trireme.tools.perf.run import look_up

_SHORTEST_WINDOW_MS = 250
_LONGEST_WINDOW_MS = 20_000
_ROUNDS = 6
"""A window lasts at least so many latencies."""
_WARM_UP_S = 0.25
_PROBE_WARM_UP_S = 0.1
_POLL_S = 0.01
_PROBE_WINDOWS = 1
"""As long as one of the three that have to agree where it is measured at length."""
_QUANTILES = 33

OnState = Callable[[LoadState], None]


class LoadPoint:
    """One model under one load: prepared, measured, ended. Raises MeasurementError, or InputError where the model
    cannot be loaded at all."""

    def __init__(self, load: Load, words: Sequence[str], measuring: MeasuringOptions) -> None:
        self.load = load
        self._measuring = measuring
        options = perf_options(load, words)
        with ExitStack() as opened:
            try:
                calls = connect(options)
                opened.callback(calls.close)
                model = look_up(options, calls)
                if model.is_sequence and not options.is_forced_sync:
                    options = replace(options, is_async=True)
                self._has_statistics = "statistics" in calls.extensions()
                prepared = prepare_load(options, model, calls)
            except PerfError as error:
                raise InputError(_plain(error)) from None
            opened.pop_all()
        self._options, self._model, self._calls = options, model, calls
        self._regions = prepared.regions
        self._process = LoadProcess(prepared.recipe.build, keeps_details=False)

    def warm_up(self, interruption: Interruption, timeout_s: float, is_probe: bool) -> float:
        """Puts the load on until every client has had an answer; the mean latency in ms."""
        least_s = _PROBE_WARM_UP_S if is_probe else _WARM_UP_S
        self._process.configure(self._level)
        began = time.monotonic()
        before = self._process.state().total
        wanted = before + max(2, self.load.concurrency)
        while True:
            if interruption.is_set:
                raise Interrupted
            state = self._process.state()
            if state.error is not None:
                raise MeasurementError(_plain_text(state.error))
            passed = time.monotonic() - began
            if state.total >= wanted and passed >= least_s:
                break
            if passed > timeout_s:
                raise MeasurementError(f"fewer than {wanted - before} requests were answered within {timeout_s:g} s")
            time.sleep(_POLL_S)
        records, _ = self._process.take()
        return float(records.latency_ns.mean()) / 1e6 if len(records) else 0.0

    def measure(
        self, interruption: Interruption, latency_ms: float, is_probe: bool, on_state: OnState
    ) -> tuple[Summary, bool]:
        """The numbers, and whether they are stable."""
        shortest = self._measuring.window_ms or _SHORTEST_WINDOW_MS
        is_given = self._measuring.window_ms is not None and not is_probe
        window_ms = shortest if is_given else max(shortest, int(latency_ms * _ROUNDS))
        window_ms = min(_LONGEST_WINDOW_MS, window_ms)
        failure = ""
        for _ in range(self._measuring.max_adjustments + 1):
            try:
                result = self._run(window_ms, interruption, is_probe, on_state)
            except PerfError as error:
                if error.exit_code != OPTION_ERROR:
                    raise MeasurementError(_plain(error)) from None
                failure = _plain(error)
            else:
                if result.is_interrupted:
                    raise Interrupted
                if result.summary is not None:
                    return result.summary, result.is_stable
            window_ms *= 2
            if window_ms * WINDOWS / 1000 > self._measuring.timeout_s:
                break
        raise MeasurementError(failure or "no request was answered")

    def stop(self, is_interrupted: bool) -> None:
        """Ends the load; requests under way are not waited for where it was interrupted."""
        if is_interrupted:
            self._process.kill()
        else:
            self._process.stop()
        if self._regions is not None:
            self._regions.remove()
        self._calls.close()

    @property
    def _level(self) -> LoadLevel:
        rate = self.load.request_rate
        if rate is None:
            return LoadLevel(concurrency=self.load.concurrency)
        return LoadLevel(schedule=Schedule(self._options.distribution, rate=rate, seed=self._options.seed))

    def _run(self, window_ms: int, interruption: Interruption, is_probe: bool, on_state: OnState) -> LevelResult:
        windows = MeasurementOptions(
            window_ms=window_ms,
            stability_percent=self._measuring.stability_percent,
            max_trials=_PROBE_WINDOWS if is_probe else self._measuring.max_trials,
            percentile=self._options.measurement.percentile,
        )
        measurement = Measurement(
            replace(self._options, measurement=windows),
            self._model,
            self._process,
            calls=self._calls if self._has_statistics else None,
            poller=None,
            interruption=interruption,
            on_window=lambda number, summary: None,
            on_state=on_state,
        )
        result = measurement.run(self._level)
        if result.failure is not None:
            raise result.failure
        return result


def perf_options(load: Load, words: Sequence[str]) -> PerfOptions:
    """The options of the load generator; raises InputError for flags that it does not know."""
    given = ["-m", load.model, *words]
    if load.batch_size != 1:
        given += ["-b", str(load.batch_size)]
    try:
        options = read_options(make_parser("perf_analyzer_flags"), given)
    except PerfError as error:
        raise InputError(f"the load generator cannot be given these flags: {error}") from None
    if load.request_rate is None:
        return replace(
            options, mode=LoadMode.CONCURRENCY, concurrency=Range(load.concurrency, load.concurrency), max_threads=16
        )
    return replace(options, mode=LoadMode.REQUEST_RATE, request_rate=Range(load.request_rate, load.request_rate))


def measured(model: str, summary: Summary, is_stable: bool) -> Measured:
    """Its metrics, without what the machine says."""
    metrics = {
        "perf_throughput": summary.throughput,
        "perf_latency_avg": summary.mean_ns / 1e6,
        "perf_client_send_recv": (summary.send_ns + summary.receive_ns) / 1e6,
        "perf_client_response_wait": max(0, summary.mean_ns - summary.send_ns - summary.receive_ns) / 1e6,
    }
    for percent, value in summary.percentiles_ns.items():
        metrics[f"perf_latency_p{percent}"] = value / 1e6
    if summary.server is not None:
        metrics.update(_stages(summary.server))
    return Measured(model, metrics, spread=_spread(summary), is_stable=is_stable)


def _stages(stats: ServerStats) -> dict[str, float]:
    """Milliseconds of a request in each stage, those of the models it goes through included."""
    requests = max(1, stats.counts.success_count)
    found = {}
    for stage in ("queue", "compute_input", "compute_infer", "compute_output"):
        found[f"perf_server_{stage}"] = _nanoseconds(stats, stage) / requests / 1e6
    executions = stats.counts.execution_count
    if executions:
        found["batch_size_avg"] = stats.counts.inference_count / executions
    return found


def _nanoseconds(stats: ServerStats, stage: str) -> int:
    """Of a model that others are inside of, an ensemble or a caller, the time in them is in its own as well."""
    own: int = getattr(stats.counts, f"{stage}_ns")
    if not stats.parts:
        return own
    inside = sum(_nanoseconds(part, stage) for part in stats.parts)
    if stage == "compute_infer":
        return inside + max(0, own - sum(part.counts.success_ns for part in stats.parts))
    return inside + own if stage == "queue" else max(inside, own)


def _spread(summary: Summary) -> tuple[float, ...]:
    latencies: Any = summary.latencies_ns
    if len(latencies) < 2 or not summary.mean_ns:
        return ()
    quantiles = np.quantile(latencies, (np.arange(_QUANTILES) + 0.5) / _QUANTILES) / summary.mean_ns
    return tuple(round(float(value), 4) for value in quantiles)


def _plain(error: PerfError) -> str:
    return _plain_text(str(error))


def _plain_text(text: str) -> str:
    """Without the words that only the original's log has."""
    for words in ("error: Failed to init manager inputs: ", "error: failed to get model metadata: "):
        text = text.replace(words, "")
    return text.replace("error: failed to get model config: ", "").strip()
