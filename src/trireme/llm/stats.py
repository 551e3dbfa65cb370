"""What observers are told of an engine: counts, and times as histograms."""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass, field

from trireme.llm.request import Sequence
from trireme.llm.scheduler import Scheduler, StepPlan

FIRST_TOKEN_BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
OUTPUT_TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
REQUEST_BOUNDS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
STEP_TOKEN_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOKEN_COUNT_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)


@dataclass(slots=True)
class Histogram:
    """Observations by upper bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """One moment."""

    running: int
    waiting: int
    block_count: int
    free_blocks: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    cached_tokens: int
    looked_up_tokens: int
    finished: dict[str, int]
    steps: int
    step_tokens: Histogram
    """Tokens of each step."""
    first_token: Histogram
    output_token: Histogram
    """The gaps between the tokens of a sequence."""
    queue: Histogram
    prefill: Histogram
    end_to_end: Histogram
    prompt_size: Histogram
    output_size: Histogram


class StatsRecorder:
    """Counts in the engine's thread; snapshots may be taken in any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._step_tokens = Histogram(STEP_TOKEN_BOUNDS)
        self._generated = 0
        self._finished: dict[str, int] = {}
        self._first_token = Histogram(FIRST_TOKEN_BOUNDS_S)
        self._output_token = Histogram(OUTPUT_TOKEN_BOUNDS_S)
        self._queue = Histogram(REQUEST_BOUNDS_S)
        self._prefill = Histogram(REQUEST_BOUNDS_S)
        self._end_to_end = Histogram(REQUEST_BOUNDS_S)
        self._prompt_size = Histogram(TOKEN_COUNT_BOUNDS)
        self._output_size = Histogram(TOKEN_COUNT_BOUNDS)

    def step(self, plan: StepPlan) -> None:
        self._steps += 1
        self._step_tokens.observe(plan.token_count)

    def token(self, sequence: Sequence, now: float) -> None:
        """A token came; called before its moment is noted in the sequence."""
        self._generated += 1
        if sequence.output_count == 1:
            self._first_token.observe(now - sequence.arrival)
        else:
            self._output_token.observe(now - sequence.last_token)

    def finished(self, sequence: Sequence) -> None:
        reason = sequence.finish_reason.value if sequence.finish_reason else "?"
        with self._lock:
            self._finished[reason] = self._finished.get(reason, 0) + 1
            self._prompt_size.observe(sequence.prompt_size)
            self._output_size.observe(sequence.output_count)
            if sequence.started:
                self._queue.observe(sequence.started - sequence.arrival)
            if sequence.first_token:
                self._prefill.observe(sequence.first_token - sequence.started)
                self._end_to_end.observe(sequence.last_token - sequence.arrival)

    def snapshot(self, scheduler: Scheduler) -> EngineStats:
        with self._lock:
            return EngineStats(
                scheduler.running_count,
                scheduler.waiting_count,
                scheduler.pool.block_count,
                scheduler.pool.free_count,
                scheduler.stats.preemptions,
                scheduler.stats.prompt_tokens,
                self._generated,
                scheduler.stats.cached_tokens,
                scheduler.stats.looked_up_tokens,
                dict(self._finished),
                self._steps,
                self._step_tokens.copy(),
                self._first_token.copy(),
                self._output_token.copy(),
                self._queue.copy(),
                self._prefill.copy(),
                self._end_to_end.copy(),
                self._prompt_size.copy(),
                self._output_size.copy(),
            )
