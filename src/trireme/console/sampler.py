"""Reads the counts of all models: every ten seconds for the history, every second while somebody watches."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from trireme.console.engine_figures import ENGINE_COLUMNS, EngineSnapshot, engine_figures, read_engine
from trireme.console.figures import IDLE, Figures, ModelSnapshot, Slowest, figures_between, figures_over, read
from trireme.console.history import STEP_S, History
from trireme.console.probes import Probes
from trireme.console.rows import Fixed, Key, Row, absent_row, fixed_of, key_of, serving_row
from trireme.observe.metrics import MetricsRegistry
from trireme.registry.index import IndexEntry
from trireme.registry.model import Model
from trireme.registry.repository.repositories import Scan
from trireme.server.server import InferenceServer

LIVE_S: Final = 1.0
"""How often the figures on the page move, at most."""
_LEAST_OFTEN_S: Final = 4.0
_CORE_SHARE: Final = 0.007
"""What reading them may take of a core: on a slow one, or of very many models, they move less often."""
_WINDOW: Final = 6
"""Readings that a live figure is made of: five seconds, or more where they are rare."""
_MIB: Final = 1 << 20
_NO_WORKERS: Final = (0, 0, 0)
_NOTHING_READ: Final = Scan({}, frozenset())
SERVER_COLUMNS: Final = ("cpu", "memory_mib", "requests_per_s", "failures_per_s", "pending")
DEVICE_COLUMNS: Final = ("utilization", "memory_mib")


class Sampler:
    """The one reader of figures. Used on the event loop's thread."""

    def __init__(self, server: InferenceServer, metrics: MetricsRegistry, probes: Probes) -> None:
        self._server = server
        self._metrics = metrics
        self._probes = probes
        self.models: History[Key] = History()
        self.engines: History[Key] = History(ENGINE_COLUMNS)  # of language models, with the steps of `models`
        self.machine: History[str] = History(SERVER_COLUMNS)
        self.devices: History[str] = History(DEVICE_COLUMNS)
        self.on_rows: Callable[[dict[Key, Row]], None] | None = None  # told while somebody watches
        self._steps: dict[Key, ModelSnapshot] = {}  # as of the last step of the history
        self._step_figures: dict[Key, Figures] = {}
        self._engine_steps: dict[Key, EngineSnapshot] = {}
        self._windows: dict[Key, deque[ModelSnapshot]] = {}
        self._live_known: dict[Key, tuple[tuple[int, ...], Figures]] = {}  # and the counts that they were made of
        self._slowest: dict[Key, Slowest] = {}
        self._memory: dict[Key, int] = {}
        self._shown: dict[Key, tuple[tuple[Any, ...], Row, Fixed]] = {}  # what a row was made of, and the row
        self._cpu_seconds: dict[Key, float] = {}
        self.scan = _NOTHING_READ
        """What the repositories held when they were last read."""
        self._step_timer: asyncio.TimerHandle | None = None
        self._live_timer: asyncio.TimerHandle | None = None
        self._scanning: asyncio.Task[None] | None = None
        self.busy_s = 0.0
        """Processor time that all of this has taken."""

    def start(self) -> None:
        """Begins the history."""
        self._step()

    def stop(self) -> None:
        """Reads no more."""
        for timer in (self._step_timer, self._live_timer):
            if timer is not None:
                timer.cancel()
        if self._scanning is not None:
            self._scanning.cancel()
        self._step_timer = self._live_timer = self._scanning = None

    def watch(self) -> None:
        """Somebody looks: figures are told every second until `unwatch`."""
        if self._live_timer is None:
            self._windows = {key: deque([snapshot], _WINDOW) for key, snapshot in self._steps.items()}
            for slowest in self._slowest.values():
                slowest.begin_live()
            self._read_repositories()
            self._live_timer = asyncio.get_running_loop().call_later(LIVE_S, self._live)

    def unwatch(self) -> None:
        """Nobody looks any more."""
        if self._live_timer is not None:
            self._live_timer.cancel()
            self._live_timer = None
        self._windows = {}
        self._live_known = {}
        self._shown = {}

    def rows(self) -> dict[Key, Row]:
        """The table of this moment."""
        states = self._metrics.workers.states()
        now_s = time.monotonic()
        found: dict[Key, Row] = {}
        serving = {(model.name, model.version): model for model in self._server.registry.models.serving()}
        for entry in self._server.registry.index(False, self.scan):
            key = key_of(entry)
            model = serving.get(key)
            if model is None:
                found[key] = absent_row(entry)
            else:
                figures = self._live_figures(key, model, now_s)
                workers = states.get(key, _NO_WORKERS)
                found[key] = self._row(key, entry, model, figures, workers)
        for gone in self._windows.keys() - serving.keys():
            del self._windows[gone]
            self._live_known.pop(gone, None)
            self._shown.pop(gone, None)
        return found

    def _row(self, key: Key, entry: IndexEntry, model: Model, figures: Figures, workers: tuple[int, int, int]) -> Row:
        """The row of before where nothing about it has changed."""
        memory_bytes = self._memory.get(key, 0)
        shown = model, entry, figures, workers, memory_bytes, model.stats.pending_count()
        before = self._shown.get(key)
        if before is not None and before[0] == shown:
            return before[1]
        is_known = before is not None and before[0][0] is model
        fixed = before[2] if before is not None and is_known else fixed_of(model.config, self.devices_of(model))
        row = serving_row(entry, model, fixed, figures, workers, memory_bytes)
        self._shown[key] = shown, row, fixed
        return row

    def devices_of(self, model: Model) -> Sequence[str]:
        """Those that the model's processes say they compute on, by label; none where they do not say."""
        return () if model.backend is None else self._probes.devices_in_use(model.backend)

    def last_figures(self, key: Key) -> Figures:
        """Those of the last five seconds while somebody watches, else of the last step."""
        window = self._windows.get(key)
        live = figures_over(window) if window else IDLE
        return self._step_figures.get(key, IDLE) if live is IDLE else live

    def machine_state(self) -> dict[str, Any]:
        """How busy the machine is."""
        cpu, total_bytes, used_bytes = self._metrics.host.state()
        return {
            "cpu": cpu,
            "memory": used_bytes,
            "memory_total": total_bytes,
            "devices": [
                {"label": device.label, "utilization": device.utilization, "memory": device.memory_used_bytes}
                for device in self._probes.devices()
            ],
        }

    def _live_figures(self, key: Key, model: Model, now_s: float) -> Figures:
        stats = model.stats
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = deque([self._steps.get(key) or read(stats, now_s)], _WINDOW)
        last = window[-1]
        if last.has_counts_of(stats):
            snapshot = last._replace(at_s=now_s, slowest_ns=0)  # most models of many are idle at any moment
        else:
            snapshot = read(stats, now_s, self._slowest_of(key).take_live(stats))
            if snapshot.began_ns != last.began_ns:
                window.clear()  # what another copy has counted says nothing
                window.append(snapshot)
        window.append(snapshot)
        if now_s - window[0].at_s < LIVE_S / 2:
            return self._step_figures.get(key, IDLE)
        first = window[0]
        tenths = round(10 * (now_s - first.at_s))  # the same counts over another time are other figures
        counts = (
            tenths,
            len(window),
            first.success_count,
            first.error_count,
            snapshot.success_count,
            snapshot.error_count,
        )
        known = self._live_known.get(key)
        if known is None or known[0] != counts:
            known = self._live_known[key] = counts, figures_over(window)
        return known[1]

    def _live(self) -> None:
        began = time.thread_time()
        self._live_timer = asyncio.get_running_loop().call_later(LIVE_S, self._live)
        if self.on_rows is not None:
            self.on_rows(self.rows())
        took_s = time.thread_time() - began
        self.busy_s += took_s
        self._read_again_in(min(took_s / _CORE_SHARE, _LEAST_OFTEN_S))

    def _read_again_in(self, pause_s: float) -> None:
        """Not before that, where somebody still watches."""
        if pause_s > LIVE_S and self._live_timer is not None:
            self._live_timer.cancel()
            self._live_timer = asyncio.get_running_loop().call_later(pause_s, self._live)

    def _step(self) -> None:
        """One step of the history."""
        began = time.thread_time()
        self._step_timer = asyncio.get_running_loop().call_later(STEP_S, self._step)
        values: dict[Key, list[float]] = {}
        engines: dict[Key, list[float]] = {}
        snapshots: dict[Key, ModelSnapshot] = {}
        now_s = time.monotonic()
        for model in self._server.registry.models.serving():
            key = model.name, model.version
            slowest_ns = self._slowest_of(key).take_step(model.stats, self._live_timer is not None)
            snapshot = snapshots[key] = read(model.stats, now_s, slowest_ns)
            before = self._steps.get(key, snapshot)
            figures = self._step_figures[key] = figures_between(before, snapshot)
            values[key] = [*_charted(figures), model.stats.pending_count(), *self._used(key, model, before, now_s)]
            engine = read_engine(model.stats, now_s)
            if engine is not None:
                engines[key] = engine_figures(self._engine_steps.get(key), engine, now_s - before.at_s)
                self._engine_steps[key] = engine
        self._steps = snapshots
        self._step_figures = {key: self._step_figures[key] for key in snapshots}
        for known in (self._memory, self._cpu_seconds, self._engine_steps, self._slowest):
            for gone in known.keys() - snapshots.keys():
                del known[gone]
        self.models.add(time.time(), values)
        self.engines.add(time.time(), engines)
        self._step_machine(values)
        if self._metrics.requests is not None:
            self._metrics.requests.pass_time()
        if self._live_timer is not None:
            self._read_repositories()
        self.busy_s += time.thread_time() - began

    def _slowest_of(self, key: Key) -> Slowest:
        return self._slowest.setdefault(key, Slowest())

    def _used(self, key: Key, model: Model, before: ModelSnapshot, now_s: float) -> tuple[float, float]:
        """Cores and memory of the model's processes."""
        if model.backend is None:
            return 0.0, 0.0
        memory_bytes = self._memory[key] = self._probes.resident_bytes(model.backend)
        seconds = self._probes.cpu_seconds(model.backend)
        used_s = seconds - self._cpu_seconds.get(key, seconds)
        self._cpu_seconds[key] = seconds
        passed_s = now_s - before.at_s
        return max(0.0, used_s / passed_s) if passed_s > 0 else 0.0, memory_bytes / _MIB

    def _step_machine(self, values: dict[Key, list[float]]) -> None:
        now_s = time.time()
        cpu, _, used_bytes = self._metrics.host.state()
        pending_at = self.models.columns.index("pending")
        sums = [sum(row[index] for row in values.values()) for index in (0, 1, pending_at)]
        nothing = float("nan")
        memory_mib = nothing if used_bytes is None else used_bytes / _MIB
        self.machine.add(now_s, {"": [nothing if cpu is None else cpu, memory_mib, *sums]})
        rows: dict[str, list[float]] = {}
        for device in self._probes.devices():
            used = device.memory_used_bytes
            share = nothing if device.utilization is None else device.utilization
            rows[device.label] = [share, nothing if used is None else used / _MIB]
        self.devices.add(now_s, rows)

    def _read_repositories(self) -> None:
        """Listing folders may take long, on a network say: a thread does it."""
        if self._scanning is None:
            self._scanning = asyncio.get_running_loop().create_task(self._scan_once())

    async def scanned(self) -> None:
        """Returns when the repositories have been read once more."""
        self._read_repositories()
        if self._scanning is not None:
            await asyncio.shield(self._scanning)

    async def _scan_once(self) -> None:
        try:
            self.scan = await asyncio.to_thread(self._server.registry.scan)
        finally:
            self._scanning = None


def _charted(figures: Figures) -> tuple[float, ...]:
    """The figures that have a column, in the order of the columns."""
    return (
        figures.requests_per_s,
        figures.failures_per_s,
        figures.queue_us,
        figures.input_us,
        figures.infer_us,
        figures.output_us,
        figures.other_us,
        figures.p50_us,
        figures.p99_us,
        figures.batch_size,
    )
