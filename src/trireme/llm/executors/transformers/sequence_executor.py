"""The executor for models whose cache is theirs alone: each sequence is computed by itself, in the engine's steps."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from trireme.llm.executors.port import StepResult, WarmUp
from trireme.llm.executors.torch.memory import release
from trireme.llm.executors.torch.results import ResultBuilder, logit_rows
from trireme.llm.executors.transformers.model_code import ModelCode
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import Sequence
from trireme.llm.step_plan import Chunk, SchedulerLimits, StepPlan


class Feeding(Enum):
    """How a model takes the tokens of a sequence."""

    PIECES = "with a cache for each sequence"
    WHOLE = "with a cache for each sequence, prompts in one piece"
    AGAIN = "without a cache: each token is computed from the whole text before it"


@dataclass(slots=True)
class _State:
    """What the model keeps of a sequence."""

    sequence: Sequence
    admission: int
    """Which stay of the sequence among those that run it belongs to."""
    size: int = 0
    """How many of its tokens it has seen."""
    cache: Any = None

    @property
    def is_current(self) -> bool:
        """Whether the sequence still runs, and was not thrown out meanwhile."""
        return self.sequence.slot >= 0 and self.sequence.admissions == self.admission


class SequenceExecutor:
    """Runs one sequence after another, in the thread that calls it."""

    is_async = False
    takes_drafts = False
    is_preparing = False

    def __init__(self, spec: DecoderSpec, limits: SchedulerLimits, code: ModelCode, feeding: Feeding) -> None:
        self.spec, self.limits = spec, limits
        self._code, self._feeding = code, feeding
        self._states: dict[int, _State] = {}
        with torch.inference_mode():
            self._results = ResultBuilder(spec, code.device)

    def warm_ups(self) -> Items[WarmUp]:
        return ()  # nothing is recorded

    def submit(self, plan: StepPlan) -> StepResult:
        self._states = {slot: state for slot, state in self._states.items() if state.is_current}
        for sequence in plan.joined:
            self._states[sequence.slot] = _State(sequence, sequence.admissions)
        with torch.inference_mode():
            return self._run(plan)

    def choose(self, handle: StepResult) -> None:
        """Nothing is left to choose: the tokens before are known."""

    def collect(self, handle: StepResult) -> StepResult:
        return handle

    def copy_blocks(self, copies: Items[tuple[int, int]]) -> None:
        """There are none: a beam that goes on from another is computed from its beginning."""

    def close(self) -> None:
        self._states = {}
        device = self._code.device
        del self._code
        release(device)

    def _run(self, plan: StepPlan) -> StepResult:
        begins = _begins(plan.chunks)
        wanted = logit_rows(plan, begins)
        found: dict[int, torch.Tensor] = {}
        for chunk, begin in zip(plan.chunks, begins, strict=True):
            rows = sorted({row for row in wanted.rows if begin <= row < begin + chunk.count})
            places = [chunk.start + row - begin for row in rows]
            found.update(zip(rows, self._advance(chunk, places), strict=True))
        return self._results.build(
            plan, wanted, lambda first, last: torch.stack([found[row] for row in wanted.rows[first:last]])
        )

    def _advance(self, chunk: Chunk, places: list[int]) -> Items[torch.Tensor]:
        """Lets the model see a chunk; the logits at these positions of its sequence."""
        state = self._states[chunk.sequence.slot]
        end = chunk.start + chunk.count
        if self._feeding is Feeding.PIECES:
            return self._feed(state, end, places)
        if self._feeding is Feeding.WHOLE and chunk.samples:
            return self._feed(state, end, places)
        # From the whole text: of some models its length decides about the beginning, too.
        return list(self._code.plain_logits(chunk.sequence.tokens, places)) if places else []

    def _feed(self, state: _State, end: int, places: list[int]) -> Items[torch.Tensor]:
        """Shows the model all up to a position that it has not seen yet."""
        device, begin, code = self._code.device, state.size, self._code
        positions = torch.arange(begin, end, device=device)
        inputs = {"position_ids": positions[None], "cache_position": positions, "use_cache": True}
        logits, outputs = code.call(
            torch.tensor(state.sequence.tokens[begin:end], device=device),
            torch.tensor([place - begin for place in places], dtype=torch.int64, device=device),
            **inputs,
            **({code.cache_name: state.cache} if state.cache is not None else {}),
        )
        state.cache = getattr(outputs, code.cache_name)
        state.size = end
        return list(logits)


def _begins(chunks: Items[Chunk]) -> list[int]:
    """The rows of the chunks' first tokens, one chunk behind the other."""
    begins, row = [], 0
    for chunk in chunks:
        begins.append(row)
        row += chunk.count
    return begins
