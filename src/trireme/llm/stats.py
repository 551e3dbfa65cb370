"""What observers are told of an engine as a whole; how long a single request took is in its own last output."""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass, field

from trireme.llm.request import Sequence
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import StepPlan

OUTPUT_TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
STEP_TOKEN_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


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
    draft_tokens: int
    """Guesses of next tokens that steps have verified."""
    accepted_tokens: int
    """Those of them that were right."""
    prompt_tokens: int
    generation_tokens: int
    cached_tokens: int
    looked_up_tokens: int
    finished: dict[str, int]
    """Sequences that have ended, by the reason."""
    steps: int
    step_tokens: Histogram
    """Tokens of each step."""
    output_token: Histogram
    """The gaps between the tokens of a sequence."""

    @property
    def accepted_share(self) -> float:
        """How many of the guesses were right, from 0 to 1."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else 0.0


class StatsRecorder:
    """Counts in the engine's thread; snapshots may be taken in any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._step_tokens = Histogram(STEP_TOKEN_BOUNDS)
        self._generated = 0
        self._drafted = 0
        self._accepted = 0
        self._finished: dict[str, int] = {}
        self._output_token = Histogram(OUTPUT_TOKEN_BOUNDS_S)

    def step(self, plan: StepPlan) -> None:
        self._steps += 1
        self._step_tokens.observe(plan.token_count)

    def tokens(self, sequence: Sequence, count: int, now: float) -> None:
        """Tokens came; called before their moment is noted in the sequence. Several have taken the same time each."""
        self._generated += count
        if not sequence.last_token:
            return  # the first, which nothing came before
        for _ in range(count):
            self._output_token.observe((now - sequence.last_token) / count)

    def drafts(self, drafted: int, accepted: int) -> None:
        """A step has verified guesses."""
        self._drafted += drafted
        self._accepted += accepted

    def finished(self, sequence: Sequence) -> None:
        reason = sequence.finish_reason.value if sequence.finish_reason else "?"
        with self._lock:
            self._finished[reason] = self._finished.get(reason, 0) + 1

    def snapshot(self, scheduler: Scheduler) -> EngineStats:
        with self._lock:
            return EngineStats(
                scheduler.running_count,
                scheduler.waiting_count,
                scheduler.pool.block_count,
                scheduler.pool.free_count,
                scheduler.stats.preemptions,
                self._drafted,
                self._accepted,
                scheduler.stats.prompt_tokens,
                self._generated,
                scheduler.stats.cached_tokens,
                scheduler.stats.looked_up_tokens,
                dict(self._finished),
                self._steps,
                self._step_tokens.copy(),
                self._output_token.copy(),
            )
