"""Goes through the levels of a run, prints each, and keeps the results."""

from __future__ import annotations

import sys
import time

from trireme.core.exit_codes import INTERRUPTED
from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.process import LoadProcess
from trireme.tools.perf.load.schedules import LoadLevel, Schedule, mean_rate, read_intervals
from trireme.tools.perf.measure.device_metrics import MetricsPoller
from trireme.tools.perf.measure.interruption import Interruption
from trireme.tools.perf.measure.level import LevelResult, Measurement
from trireme.tools.perf.measure.window import Summary, Window
from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import NO_LIMIT, LoadMode, PerfOptions, Range
from trireme.tools.perf.preparation import PreparedLoad
from trireme.tools.perf.report.level_text import level_text, pass_text
from trireme.tools.perf.report.live import LiveView
from trireme.tools.perf.report.numbers import six_digits
from trireme.tools.perf.search import Visit, binary, linear

_POLL_S = 0.01
Experiment = tuple[str, float, list[Window]]
"""Mode, level and windows, for the profile export."""


class LevelRunner:
    """The levels of one run."""

    def __init__(
        self,
        options: PerfOptions,
        model: ModelDescription | None,
        load: LoadProcess,
        prepared: PreparedLoad,
        calls: ServerCalls | None,
    ) -> None:
        self._options = options
        self._model = model
        self._load = load
        self._prepared = prepared
        self._live = LiveView(options.report)
        self._interruption = Interruption()
        self._measurement = Measurement(
            options,
            model,
            load,
            calls=calls,
            poller=MetricsPoller(options.metrics) if options.metrics.is_on else None,
            interruption=self._interruption,
            on_window=self._on_window,
            on_state=self._live.show_state,
        )
        self.rows: list[tuple[float, Summary]] = []
        self.experiments: list[Experiment] = []
        self.is_stable = True
        self.is_interrupted = False

    def run(self) -> None:
        """Measures level by level; raises PerfError, with `rows` up to there."""
        try:
            with self._interruption:
                self._run()
        finally:
            self._live.clear()

    def _run(self) -> None:
        options = self._options
        if options.mode is LoadMode.CONCURRENCY:
            most = float(options.max_threads) if options.concurrency.end == NO_LIMIT else None
            if most is not None:
                print(
                    "WARNING: The maximum attainable concurrency will be limited by max_threads specification.",
                    file=sys.stderr,
                )
            self._search(options.concurrency, self._visit_concurrency, most)
        elif options.mode is LoadMode.REQUEST_RATE:
            self._search(options.request_rate, self._visit_rate, None)
        elif options.mode is LoadMode.PERIODIC_CONCURRENCY:
            self._run_periodic()
        else:
            self._run_schedule()

    def _search(self, levels: Range, visit: Visit, most: float | None) -> None:
        if self._options.is_binary_search:
            binary(levels, visit)
        else:
            linear(levels, visit, most)

    def _visit_concurrency(self, level: float) -> bool:
        concurrency = int(level)
        if not self._warm_up(LoadLevel(concurrency=concurrency)):
            return False
        print(f"Request concurrency: {concurrency}", flush=True)
        self._live.begin(f"concurrency {concurrency}")
        return self._measure(
            level, LoadLevel(concurrency=concurrency, budget=self._budget), f"concurrency {concurrency}"
        )

    def _visit_rate(self, rate: float) -> bool:
        options = self._options
        schedule = Schedule(options.distribution, rate=rate, seed=options.seed)
        if not self._warm_up(LoadLevel(schedule=schedule)):
            return False
        print(f"Request Rate: {six_digits(rate)} inference requests per seconds", flush=True)
        self._live.begin(f"{six_digits(rate)} requests/s")
        return self._measure(rate, LoadLevel(schedule=schedule, budget=self._budget), None)

    def _run_schedule(self) -> None:
        """Requests at times that the user gave."""
        options = self._options
        if options.mode is LoadMode.INTERVALS:
            intervals = tuple(read_intervals(options.intervals_file or ""))
            schedule, rate = Schedule("intervals", values=intervals), mean_rate(intervals)
            self._warm_up(LoadLevel(schedule=schedule))
        else:
            stamps = [content.timestamp_ms for content in self._prepared.contents]
            if any(stamp is None for stamp in stamps):
                raise PerfError("--fixed-schedule needs a timestamp in every entry of --input-data")
            times = tuple(stamp for stamp in stamps if stamp is not None)
            if times != tuple(sorted(times)):
                raise PerfError("--fixed-schedule needs the entries of --input-data in the order of their timestamps")
            seconds = (max(times) - min(times)) / 1000
            schedule, rate = Schedule("fixed", values=times), len(times) / seconds if seconds else float(len(times))
        self._live.begin("schedule")
        self._measure(rate, LoadLevel(schedule=schedule, budget=self._budget), None)

    def _run_periodic(self) -> None:
        """Until every request has been answered; there is nothing to report but the export."""
        options = self._options
        end = int(options.periodic.end)
        self._live.begin("periodic concurrency")
        self._load.configure(
            LoadLevel(
                concurrency=int(options.periodic.start),
                budget=end,
                step=int(options.periodic.step),
                period=options.request_period,
            )
        )
        while (state := self._load.state()).total < end:
            if state.error is not None:
                raise PerfError(f"Failed to maintain requested inference load: {state.error}")
            if self._interruption.is_set:
                self.is_interrupted = True
                break
            self._live.show_state(state)
            time.sleep(_POLL_S)
        records, _ = self._load.take()
        self.experiments.append(("concurrency", 1, [Window(records, 1, bounds_ns=(0, 0))]))

    @property
    def _budget(self) -> int | None:
        return self._options.measurement.request_count or None

    def _warm_up(self, level: LoadLevel) -> bool:
        """Whether to go on; raises PerfError where it was interrupted, and nothing has been measured yet."""
        count = self._options.measurement.warmup_request_count
        if not count:
            return True
        wanted = self._load.state().total + count
        self._load.configure(LoadLevel(level.concurrency, level.schedule, budget=count))
        self._live.begin("warmup")
        while (state := self._load.state()).total < wanted and state.error is None and not self._interruption.is_set:
            self._live.show_state(state)
            time.sleep(_POLL_S)
        self._live.clear()
        if self._interruption.is_set and not self.rows:
            raise PerfError("Interrupted before the measurement began.", INTERRUPTED)
        self.is_interrupted = self._interruption.is_set
        return not self.is_interrupted

    def _measure(self, level: float, load_level: LoadLevel, name: str | None) -> bool:
        result = self._measurement.run(load_level)
        self._live.clear()
        mode = "concurrency" if self._options.mode is LoadMode.CONCURRENCY else "request_rate"
        self.experiments.append((mode, level, result.windows))
        self.is_interrupted = result.is_interrupted
        self._report(level, result, name)
        if result.failure is not None:
            raise result.failure
        return result.is_within_limit and result.is_stable and not result.is_interrupted

    def _report(self, level: float, result: LevelResult, name: str | None) -> None:
        measurement = self._options.measurement
        if not result.is_within_limit:
            print(f"Measured latency went over the set limit of {measurement.latency_limit_ms} msec. ", file=sys.stderr)
            return
        if not result.is_stable and not result.is_cut:
            self.is_stable = False
            if name is None:
                print("Failed to obtain stable measurement.", file=sys.stderr)
            else:
                flag = "--measurement-request-count" if measurement.counts_requests else "--measurement-interval"
                print(
                    f"Failed to obtain stable measurement within {measurement.max_trials} measurement windows for "
                    f"{name}. Please try to increase the {flag}.",
                    file=sys.stderr,
                )
            return
        if result.summary is not None:
            self.rows.append((level, result.summary))
            print(level_text(result.summary, self._options, self._model), flush=True)

    def _on_window(self, number: int, summary: Summary | None) -> None:
        self._live.show_window(number, summary)
        if summary is None:
            self._live.clear()
            print(f"No request was answered in window {number}.", file=sys.stderr, flush=True)
        if self._options.report.verbosity:
            self._live.clear()
            print(pass_text(number, summary), flush=True)
