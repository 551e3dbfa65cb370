"""An executor that goes ahead as one on a device does."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import StepResult
from trireme.llm.sampling.numpy_sampler import choose
from trireme.llm.sampling.rows import SampledRow, all_sampled_rows
from trireme.llm.step_plan import Chunk, StepPlan


@dataclass
class Step:
    """One whose logits are there, and its tokens once they are chosen."""

    rows: list[SampledRow]
    slots: list[int]
    logits: Any
    prompt_logprobs: Any
    result: StepResult | None = None


class AheadExecutor(NumpyExecutor):
    """Is given the next step before this one is looked at: it keeps the last token of each slot, as a GPU does, and
    chooses a step's tokens when those before are known, where they decide about them."""

    is_async = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.limits = replace(self.limits, chooses_later=True)
        self._last: dict[int, int] = {}
        self.pending_count = 0
        self.later_count = 0
        """Steps whose tokens were not chosen when they began."""

    def submit(self, plan: StepPlan) -> Step:
        rows = all_sampled_rows(plan.chunks)
        with self._threads(), np.errstate(over="ignore", under="ignore"):
            known = replace(plan, chunks=tuple(map(self._known, plan.chunks)))
            step = Step(rows, [row.sequence.slot for row in rows], *self._compute(known, rows))
        if any(chunk.is_pending and chunk.sequence.params.needs_history for chunk in plan.chunks):
            self.later_count += 1
        else:
            self.choose(step)
        return step

    def choose(self, step: Step) -> None:
        if step.result is not None:
            return
        left = [number for number, row in enumerate(step.rows) if row.sequence.finish_reason is None]
        sequences, positions = [step.rows[n].sequence for n in left], [step.rows[n].position for n in left]
        choice = choose(step.logits[left], sequences, positions) if left else None
        tokens = [0] * len(step.rows)
        for number, token in zip(left, choice.tokens if choice else (), strict=True):
            tokens[number] = self._last[step.slots[number]] = token
        logprobs = {left[row]: one for row, one in choice.logprobs.items()} if choice else {}
        step.result = StepResult(tokens, logprobs, step.prompt_logprobs)

    def collect(self, step: Step) -> StepResult:
        assert step.result is not None
        return step.result

    def _known(self, chunk: Chunk) -> Chunk:
        if not chunk.is_pending:
            return chunk
        self.pending_count += 1
        one = copy.copy(chunk.sequence)
        one.tokens = [*one.tokens, self._last[one.slot]]
        return replace(chunk, sequence=one, is_pending=False)
