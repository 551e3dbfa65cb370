"""Executors in plain PyTorch whose steps are one flat batch over blocks; each is computed when it is submitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from trireme.llm.adapters.adapter import Adapter
from trireme.llm.executors.cache_dtype import cache_dtype
from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.port import StepResult, WarmUp
from trireme.llm.executors.torch.adapters import AdapterRows, Layers, adapter_rows, place_adapter
from trireme.llm.executors.torch.attention import scoring_of
from trireme.llm.executors.torch.cache import BlockTables, Integers, PagedCache, Pages
from trireme.llm.executors.torch.decoder import Decoder, StepTokens
from trireme.llm.executors.torch.layout import LayoutBuilder, Span
from trireme.llm.executors.torch.memory import cache_bytes, release
from trireme.llm.executors.torch.results import ResultBuilder, RowLogits, logit_rows
from trireme.llm.executors.torch.weights import gather_weights
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.step_plan import Chunk, SchedulerLimits, StepPlan


class StepModel(Protocol):
    """A model that computes steps over blocks of keys and values."""

    @property
    def pages(self) -> Pages:
        """Where its keys and values are."""

    @property
    def windows(self) -> Collection[int]:
        """How far back its layers look; 0: to the beginning."""

    @property
    def is_fused(self) -> bool:
        """Whether it can do without a mask where a chunk is the beginning of its sequence."""

    def run(self, step: StepTokens, rows: torch.Tensor) -> RowLogits:
        """Computes a step; its keys and values are then in the blocks. `rows` are those that logits are wanted of."""


class PagedExecutor:
    """Runs a model's steps in the thread that calls it."""

    is_async = False
    takes_drafts = True
    is_preparing = False

    def __init__(
        self, spec: DecoderSpec, limits: SchedulerLimits, model: StepModel, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.spec, self.limits = spec, limits
        self._model, self._device = model, device
        with torch.inference_mode():
            self._results = ResultBuilder(spec, device)
        self._tables = BlockTables(limits.max_sequences, -(-spec.max_positions // limits.block_size))
        self._layouts = LayoutBuilder(model.pages, self._tables, device, dtype, is_causal_known=model.is_fused)

    def warm_ups(self) -> Items[WarmUp]:
        return ()  # all steps are of one kind

    def submit(self, plan: StepPlan) -> StepResult:
        self._tables.forget(plan.joined)
        for chunk in plan.chunks:
            self._tables.update(chunk.sequence)
        with torch.inference_mode():
            return self._run(plan)

    def choose(self, handle: StepResult) -> None:
        """Nothing is left to choose: the tokens before are known."""

    def collect(self, handle: StepResult) -> StepResult:
        return handle

    def copy_blocks(self, copies: Items[tuple[int, int]]) -> None:
        with torch.inference_mode():
            sources, targets = torch.tensor(copies, device=self._device).unbind(1)
            self._model.pages.copy(sources, targets)

    def close(self) -> None:
        del self._model, self._layouts, self._tables
        release(self._device)

    def _run(self, plan: StepPlan) -> StepResult:
        order = _order(plan.chunks)
        chunks = [plan.chunks[number] for number in order]
        spans = _spans(chunks)
        begins = [0] * len(order)
        for number, span in zip(order, spans, strict=True):
            begins[number] = span.begin
        wanted = logit_rows(plan, begins)
        adapters = adapter_rows(chunks, spans, self._device)
        return self._results.build(plan, wanted, self._compute(self._packed(chunks), spans, wanted.rows, adapters))

    def _compute(
        self, packed: Integers, spans: Items[Span], rows: Items[int], adapters: tuple[AdapterRows, ...]
    ) -> RowLogits:
        step = step_tokens(packed, spans, self._layouts, self._model.windows, self._device)
        step = replace(step, adapters=adapters) if adapters else step
        return self._model.run(step, torch.tensor(rows, dtype=torch.int64, device=self._device))

    def _packed(self, chunks: Items[Chunk]) -> Integers:
        """Of each token: itself, its position, whether its sequence is long, its place in the cache."""
        tokens: list[int] = []
        for chunk in chunks:
            tokens += chunk.tokens
        counts = [chunk.count for chunk in chunks]
        positions = np.concatenate([np.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks])
        rows = np.repeat([chunk.sequence.slot for chunk in chunks], counts)
        size = self.limits.block_size
        blocks = self._tables.window(rows, positions // size, 1)[:, 0]
        is_long = np.repeat([chunk.sequence.is_long for chunk in chunks], counts)
        return np.stack([np.array(tokens), positions, is_long, blocks * size + positions % size]).astype(np.int64)


class TorchExecutor(PagedExecutor):
    """With the arithmetic of our own decoder, for every architecture that the catalog has."""

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: Iterable[tuple[str, torch.Tensor]],
        options: EngineOptions,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Takes the tensors over; on a CPU the cache's memory is used as blocks are first written."""
        place = device or torch.device("cpu")
        spec = replace(spec, max_positions=min(spec.max_positions, options.max_length or spec.max_positions))
        with torch.inference_mode():
            weights = gather_weights(spec, tensors, place, dtype)
            kept_as = cache_dtype(options, dtype)
            limits = limits_for(spec, options, cache_bytes(place, options), kept_as.itemsize)
            cache = PagedCache(spec, limits.block_count, limits.block_size, place, dtype, kept_as)
            decoder = Decoder(spec, weights, cache, scoring_of(spec, place))
        super().__init__(spec, limits, decoder, place, dtype)
        self._dtype = dtype

    def place_adapter(self, adapter: Adapter) -> Layers:
        return place_adapter(adapter, self._device, self._dtype)


def step_tokens(
    packed: Integers, spans: Items[Span], layouts: LayoutBuilder, windows: Collection[int], device: torch.device
) -> StepTokens:
    """A step on the device: tokens that stand alone come first, as their spans do."""
    layouts.clear_begun(spans)
    sent = torch.from_numpy(packed).to(device)
    singles = [span for span in spans if span.end - span.begin == 1]
    longer = spans[len(singles) :]
    built = {window: layouts.build(singles, longer, window) for window in windows}
    return StepTokens(sent[0], sent[1], sent[2], sent[3], built)


def _order(chunks: tuple[Chunk, ...]) -> list[int]:
    """Single tokens first, from short sequences to long ones, then chunks: by their numbers."""
    return sorted(range(len(chunks)), key=lambda number: (chunks[number].count > 1, chunks[number].start))


def _spans(chunks: Items[Chunk]) -> list[Span]:
    spans: list[Span] = []
    begin = 0
    for chunk in chunks:
        spans.append(Span(begin, begin + chunk.count, chunk.start, chunk.sequence.slot))
        begin += chunk.count
    return spans
