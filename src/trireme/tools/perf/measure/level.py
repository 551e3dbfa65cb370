"""Measures one level of load: windows until they agree, or until there have been enough of them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.errors import OPTION_ERROR, PerfError
from trireme.tools.perf.load.process import LoadProcess, LoadState
from trireme.tools.perf.load.records import Records, no_records
from trireme.tools.perf.load.schedules import LoadLevel
from trireme.tools.perf.measure.device_metrics import MetricsPoller
from trireme.tools.perf.measure.interruption import Interruption
from trireme.tools.perf.measure.server_stats import ServerStats, Snapshot, difference, snapshot
from trireme.tools.perf.measure.stability import WINDOWS, is_over_limit, is_stable
from trireme.tools.perf.measure.window import Summary, Window, summarize
from trireme.tools.perf.model import ComposingModel, ModelDescription
from trireme.tools.perf.options import NO_LIMIT, PerfOptions

_WINDOW_MARGIN = 1.2
"""Windows last so much longer than asked for, as those of the original do."""
_COUNT_POLL_S = 1.0
_EXACT_POLL_S = 0.01
_HEALTH_POLL_S = 0.25
_NAP_S = 0.05
_LARGEST_LATENCY = float(2**63)
_NO_REQUESTS = "No valid requests recorded within time interval. Please use a larger time window."
_SILENT_SERVER = " The server has taken the requests and answered none."

OnWindow = Callable[[int, Summary | None], None]
OnState = Callable[[LoadState], None]


@dataclass(slots=True)
class LevelResult:
    """How a level went."""

    summary: Summary | None = None
    is_stable: bool = False
    is_within_limit: bool = True
    is_interrupted: bool = False
    failure: PerfError | None = None
    """What ended it early; the windows are those before it."""
    windows: list[Window] = field(default_factory=list)
    """All of them, oldest first, for the profile export."""

    @property
    def is_cut(self) -> bool:
        return self.is_interrupted or self.failure is not None


class Measurement:
    """Looks at the load from outside."""

    def __init__(
        self,
        options: PerfOptions,
        model: ModelDescription | None,
        load: LoadProcess,
        *,
        calls: ServerCalls | None,
        poller: MetricsPoller | None,
        interruption: Interruption,
        on_window: OnWindow,
        on_state: OnState,
    ) -> None:
        self._options = options
        self._model = model
        self._load = load
        self._calls = calls
        """None where the server has no statistics."""
        self._poller = poller
        self._interruption = interruption
        self._on_window = on_window
        self._on_state = on_state
        self._leftover = no_records()

    def run(self, level: LoadLevel) -> LevelResult:
        """Puts this load on and measures it; raises PerfError where it breaks down before a request was answered."""
        if self._poller is not None:
            self._poller.start()
        try:
            return self._run(level)
        finally:
            if self._poller is not None:
                self._poller.stop()

    def _run(self, level: LoadLevel) -> LevelResult:
        measurement = self._options.measurement
        result = LevelResult()
        throughputs: list[float] = []
        latencies: list[float] = []
        self._leftover = no_records()
        statistics = self._snapshot()
        _, state = self._load.take()
        _check(state)
        self._load.configure(level)
        begin = _Look(time.monotonic_ns(), statistics, state)
        failures: list[bool] = []
        while len(throughputs) < measurement.max_trials and not result.is_cut:
            try:
                end, window = self._window(begin, result)
            except PerfError as error:
                result.windows += self._last_window(begin, is_first=not result.windows)
                if not result.windows:
                    raise
                result.failure = error
                break
            result.windows.append(window)
            summary = summarize([window], self._options.inputs.batch_size, measurement.percentile)
            failures.append(summary is None)
            throughputs.append(0.0 if summary is None else summary.throughput)
            latencies.append(_LARGEST_LATENCY if summary is None else summary.stabilizing_ns)
            self._on_window(len(throughputs), summary)
            begin = end
            if measurement.request_count:
                result.is_stable = True
                break
            result.is_stable = is_stable(throughputs, latencies, measurement.stability_percent)
            limit = measurement.latency_limit_ms
            if result.is_stable or (limit != NO_LIMIT and is_over_limit(latencies, limit)):
                break
        self._judge(result, throughputs, latencies)
        if any(failures[-WINDOWS:]) and not result.is_cut:
            raise PerfError(_NO_REQUESTS + (_SILENT_SERVER if all(failures) else ""), OPTION_ERROR)
        return result

    def _judge(self, result: LevelResult, throughputs: list[float], latencies: list[float]) -> None:
        measurement = self._options.measurement
        if not result.is_stable and self._options.is_async and not result.is_cut:
            percent = measurement.stability_percent
            if is_stable(throughputs, latencies, percent, checks_latency=False):
                print(
                    "Warning: Request latency is not stabilizing. Please try lowering the request rate.",
                    file=sys.stderr,
                )
                result.is_stable = True
        last = result.windows[-WINDOWS:]
        result.summary = summarize(last, self._options.inputs.batch_size, measurement.percentile)
        if result.summary is not None and measurement.latency_limit_ms != NO_LIMIT:
            result.is_within_limit = result.summary.stabilizing_ns // 1_000_000 < measurement.latency_limit_ms

    def _window(self, begin: _Look, result: LevelResult) -> tuple[_Look, Window]:
        self._wait(begin)
        result.is_interrupted = self._interruption.is_set
        end_ns = time.monotonic_ns()
        after = self._snapshot()
        records, state = self._load.take()
        self._leftover = self._leftover.joined([records])
        _check(state)
        records, self._leftover = self._leftover.ended_until(end_ns)
        begin_ns = begin.now_ns
        if self._options.measurement.request_count and len(records):
            begin_ns, end_ns = int(records.begin_ns.min()), int(records.end_ns.max())
        duration_ns = max(1, end_ns - begin_ns)
        window = Window(
            records,
            duration_ns,
            self._server_stats(begin.statistics, after, records),
            self._poller.take() if self._poller is not None else (),
            (state.cpu_s - begin.state.cpu_s) * 1e9 / duration_ns,
            (begin_ns, end_ns),
        )
        return _Look(end_ns, after, state), window

    def _last_window(self, begin: _Look, is_first: bool) -> list[Window]:
        """What was answered since then, before the load broke down; none where that is nothing."""
        records = self._leftover
        with contextlib.suppress(PerfError):  # the process of the load itself may be gone
            records = records.joined([self._load.take()[0]])
        if not len(records):
            return []
        # The first requests were sent, and may have been answered, before the load said that it is on.
        begin_ns = min(begin.now_ns, int(records.begin_ns.min())) if is_first else begin.now_ns
        end_ns = int(records.end_ns.max())
        return [Window(records, max(1, end_ns - begin_ns), bounds_ns=(begin_ns, end_ns))]

    def _wait(self, begin: _Look) -> None:
        measurement = self._options.measurement
        exact = measurement.request_count
        if exact or measurement.counts_requests:
            count = exact or measurement.window_requests
            pause_s = _EXACT_POLL_S if exact else _COUNT_POLL_S
            while not self._interruption.is_set:
                self._sleep(pause_s)
                answered = self._look().total - begin.state.total
                if answered >= count:
                    return
                if exact:
                    pause_s = _pause_until(count, answered, time.monotonic() - begin.now_ns / 1e9)
        else:
            until = begin.now_ns / 1e9 + measurement.window_ms / 1000 * _WINDOW_MARGIN
            while (left := until - time.monotonic()) > 0 and not self._interruption.is_set:
                self._sleep(min(left, _HEALTH_POLL_S))
                if left > _HEALTH_POLL_S:
                    self._look()

    def _sleep(self, seconds: float) -> None:
        """In short naps: a signal that is only noted does not wake anybody."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._interruption.is_set:
            time.sleep(min(left, _NAP_S))

    def _look(self) -> LoadState:
        state = self._load.state()
        _check(state)
        self._on_state(state)
        return state

    def _snapshot(self) -> Snapshot:
        model = self._model
        if self._calls is None or model is None:
            return {}
        return snapshot(self._calls.statistics("" if model.parts else model.name, "" if model.parts else model.version))

    def _server_stats(self, before: Snapshot, after: Snapshot, records: Records) -> ServerStats | None:
        model = self._model
        if self._calls is None or model is None or not len(records):
            return None
        return difference(before, after, ComposingModel(model.name, model.version, model.parts), model.is_cached)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was known at the edge of a window."""

    now_ns: int
    statistics: Snapshot
    state: LoadState


def _pause_until(count: int, answered: int, seconds: float) -> float:
    """Half of what is left, by what went before: every look disturbs the load."""
    left_s = (count - answered) * seconds / max(1, answered)
    return min(_HEALTH_POLL_S, max(_EXACT_POLL_S, left_s / 2))


def _check(state: LoadState) -> None:
    if state.error is not None:
        raise PerfError(
            "Failed to maintain requested inference load. Worker thread(s) failed to generate concurrent requests.\n"
            f"Thread [0] had error: {state.error}\n"
        )
