"""The executor that needs nothing but numpy: each step is computed when it is submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from trireme.llm.adapters.adapter import Adapter
from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.numpy.adapters import Layers, adapter_rows, place_adapter
from trireme.llm.executors.numpy.attention import PagedCache, Rows
from trireme.llm.executors.numpy.blas_threads import one_thread
from trireme.llm.executors.numpy.decoder import Decoder, StepTokens
from trireme.llm.executors.numpy.weights import Array, gather_weights
from trireme.llm.executors.port import LOGPROB_ROWS, StepResult, WarmUp
from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling.numpy_sampler import choose, describe
from trireme.llm.sampling.rows import SampledRow, all_sampled_rows
from trireme.llm.step_plan import StepPlan

Threads = Callable[[], AbstractContextManager[None]]

_SMALL = 1024
"""Up to this hidden size more threads than one make steps slower."""


class NumpyExecutor:
    """Computes in the thread that calls it."""

    is_async = False
    takes_drafts = True
    is_preparing = False

    def __init__(self, spec: DecoderSpec, weights: Iterable[tuple[str, StoredWeight]], options: EngineOptions) -> None:
        """Takes the weights over; the cache's memory is used as blocks are first written."""
        self.spec = replace(spec, max_positions=min(spec.max_positions, options.max_length or spec.max_positions))
        self.limits = limits_for(self.spec, options)
        self._cache = PagedCache(self.spec, self.limits.block_count, self.limits.block_size)
        self._threads: Threads = one_thread if spec.hidden_size <= _SMALL else nullcontext
        self._decoder = Decoder(self.spec, gather_weights(self.spec, weights), self._cache)

    def warm_ups(self) -> Sequence[WarmUp]:
        return ()  # all steps are of one kind

    def submit(self, plan: StepPlan) -> StepResult:
        # exp(-x) of an activation may end in infinity, as it should
        with self._threads(), np.errstate(over="ignore", under="ignore"):
            return self._run(plan)

    def choose(self, handle: StepResult) -> None:
        """Nothing is left to choose: the tokens before are known."""

    def collect(self, handle: StepResult) -> StepResult:
        return handle

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        sources, targets = np.array(copies, np.intp).T
        self._cache.copy(sources, targets)

    def place_adapter(self, adapter: Adapter) -> Layers:
        return place_adapter(adapter)

    def close(self) -> None:
        del self._decoder, self._cache

    def _run(self, plan: StepPlan) -> StepResult:
        sampled = all_sampled_rows(plan.chunks)
        logits, prompt_logprobs = self._compute(plan, sampled)
        if not sampled:
            return StepResult((), {}, prompt_logprobs)
        choice = choose(logits, [row.sequence for row in sampled], [row.position for row in sampled])
        return StepResult(choice.tokens, choice.logprobs, prompt_logprobs)

    def _compute(
        self, plan: StepPlan, sampled: Sequence[SampledRow]
    ) -> tuple[Array, dict[int, tuple[TokenLogprobs, ...]]]:
        """The logits of those rows, and what is to be told of prompts."""
        step = self._tokens_of(plan)
        hidden = self._decoder.hidden_states(step)
        begins = np.repeat([one.begin for one in step.rows], [len(chunk.sampled) for chunk in plan.chunks])
        rows = hidden[begins + np.array([row.offset for row in sampled], np.intp)]
        logits = self._decoder.logits(rows) if sampled else rows
        return logits, self._prompt_logprobs(plan, step, hidden)

    def _tokens_of(self, plan: StepPlan) -> StepTokens:
        tokens: list[int] = []
        rows = []
        for chunk in plan.chunks:
            begin = len(tokens)
            tokens += chunk.tokens
            rows.append(Rows(begin, len(tokens), chunk.start, np.array(chunk.sequence.blocks, np.intp)))
        positions = np.concatenate([np.arange(chunk.start, chunk.start + chunk.count) for chunk in plan.chunks])
        is_long = np.repeat([chunk.sequence.is_long for chunk in plan.chunks], [chunk.count for chunk in plan.chunks])
        slots = np.concatenate([self._cache.slots(one) for one in rows])
        adapters = adapter_rows(plan.chunks, rows)
        return StepTokens(np.array(tokens, np.intp), positions, is_long, slots, tuple(rows), adapters)

    def _prompt_logprobs(self, plan: StepPlan, step: StepTokens, hidden: Array) -> dict[int, tuple[TokenLogprobs, ...]]:
        found = {}
        for number, chunk in enumerate(plan.chunks):
            targets, begin = chunk.prompt_targets, step.rows[number].begin
            described: list[TokenLogprobs] = []
            for first in range(0, len(targets), LOGPROB_ROWS):
                part = targets[first : first + LOGPROB_ROWS]
                logits = self._decoder.logits(hidden[begin + first : begin + first + len(part)])
                count = chunk.sequence.params.prompt_logprobs or 0
                described += [describe(row, token, count) for row, token in zip(logits, part, strict=True)]
            if described:
                found[number] = tuple(described)
        return found
