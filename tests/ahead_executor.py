"""An executor that goes ahead as one on a device does."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import StepResult
from trireme.llm.step_plan import Chunk, StepPlan


class AheadExecutor(NumpyExecutor):
    """Is given the next step before this one is looked at: it keeps the last token of each slot, as a GPU does."""

    is_async = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._last: dict[int, int] = {}
        self.pending_count = 0

    def submit(self, plan: StepPlan) -> StepResult:
        result = super().submit(replace(plan, chunks=tuple(map(self._known, plan.chunks))))
        index = 0
        for chunk in plan.chunks:
            if chunk.samples:
                self._last[chunk.sequence.slot] = result.tokens[index]
                index += 1 + len(chunk.drafts)
        return result

    def _known(self, chunk: Chunk) -> Chunk:
        if not chunk.is_pending:
            return chunk
        self.pending_count += 1
        one = copy.copy(chunk.sequence)
        one.tokens = [*one.tokens, self._last[one.slot]]
        return replace(chunk, sequence=one, is_pending=False)
