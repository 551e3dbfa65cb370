"""The executor in plain PyTorch, for every architecture: each step is computed when it is submitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from trireme.llm.executors.limits import DEFAULT_CACHE_BYTES, limits_for
from trireme.llm.executors.port import StepResult
from trireme.llm.executors.torch.attention import Attention
from trireme.llm.executors.torch.cache import BlockTables, PagedCache
from trireme.llm.executors.torch.decoder import Decoder, StepTokens
from trireme.llm.executors.torch.layout import LayoutBuilder, Span
from trireme.llm.executors.torch.weights import gather_weights
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling.torch_sampler import Report, TorchSampler, describe
from trireme.llm.scheduler import Chunk, StepPlan
from trireme.machine.host_memory import free_host_bytes

_RESERVE_BYTES = 2**30
"""Left on a GPU for what steps need in passing."""


class TorchExecutor:
    """Computes in the thread that calls it."""

    is_async = False
    is_preparing = False

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: Iterable[tuple[str, torch.Tensor]],
        options: EngineOptions,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Takes the tensors over; on a CPU the cache's memory is used as blocks are first written."""
        self.spec = replace(spec, max_positions=min(spec.max_positions, options.max_length or spec.max_positions))
        self._device = device or torch.device("cpu")
        with torch.inference_mode():
            weights = gather_weights(self.spec, tensors, self._device, dtype)
            self.limits = limits_for(self.spec, options, _cache_bytes(self._device, options), dtype.itemsize)
            cache = PagedCache(self.spec, self.limits.block_count, self.limits.block_size, self._device, dtype)
            self._decoder = Decoder(self.spec, weights, cache, self._device)
            self._sampler = TorchSampler(self.spec, self._device)
        width = -(-self.spec.max_positions // self.limits.block_size)
        self._tables = BlockTables(self.limits.max_sequences, width)
        is_fused = Attention.is_fused(self.spec)
        self._layouts = LayoutBuilder(cache, self._tables, self._device, dtype, is_causal_known=is_fused)
        self._windows = {self.spec.window_of(layer) for layer in range(self.spec.layer_count)}

    def submit(self, plan: StepPlan) -> StepResult:
        self._tables.forget(plan.joined)
        for chunk in plan.chunks:
            self._tables.update(chunk.sequence)
        with torch.inference_mode():
            return self._run(plan)

    def collect(self, handle: StepResult) -> StepResult:
        return handle

    def close(self) -> None:
        del self._decoder, self._layouts, self._tables
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _run(self, plan: StepPlan) -> StepResult:
        numbers = _order(plan.chunks)
        chunks = [plan.chunks[number] for number in numbers]
        spans = _spans(chunks)
        hidden = self._decoder.hidden_states(self._tokens_of(chunks, spans))
        span_of = dict(zip(numbers, spans, strict=True))
        prompt_logprobs = self._prompt_logprobs(plan, span_of, hidden)
        sampling = [number for number, chunk in enumerate(plan.chunks) if chunk.samples]
        if not sampling:
            return StepResult((), {}, prompt_logprobs)
        ends = torch.tensor([span_of[number].end - 1 for number in sampling], device=self._device)
        logits = self._decoder.logits(hidden.index_select(0, ends))
        tokens, logprobs = self._choose(logits, [plan.chunks[number] for number in sampling])
        return StepResult(tokens, logprobs, prompt_logprobs)

    def _choose(self, logits: torch.Tensor, chunks: list[Chunk]) -> tuple[list[int], dict[int, TokenLogprobs]]:
        special = [row for row, chunk in enumerate(chunks) if not chunk.sequence.params.is_plain_greedy]
        if len(special) == len(chunks):
            tokens = [0] * len(chunks)
        else:
            tokens = logits.max(-1).indices.tolist()  # as argmax, but in a third of the time on a CPU
        if not special:
            return tokens, {}
        sequences = [chunks[row].sequence for row in special]
        positions = [chunks[row].start + chunks[row].count for row in special]
        chosen, reports = self._sampler.choose(logits, special, sequences, positions)
        for row, token in zip(special, chosen.tolist(), strict=True):
            tokens[row] = token
        return tokens, {row: _logprobs(report) for row, report in reports.items()}

    def _tokens_of(self, chunks: list[Chunk], spans: list[Span]) -> StepTokens:
        tokens: list[int] = []
        for chunk in chunks:
            tokens += chunk.sequence.tokens[chunk.start : chunk.start + chunk.count]
        counts = [chunk.count for chunk in chunks]
        positions = np.concatenate([np.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks])
        rows = np.repeat([chunk.sequence.slot for chunk in chunks], counts)
        size = self.limits.block_size
        blocks = self._tables.window(rows, positions // size, 1)[:, 0]
        is_long = np.repeat([chunk.sequence.is_long for chunk in chunks], counts)
        packed = np.stack([np.array(tokens), positions, is_long, blocks * size + positions % size]).astype(np.int64)
        sent = torch.from_numpy(packed).to(self._device)
        singles = [span for span in spans if span.end - span.begin == 1]
        longer = spans[len(singles) :]
        layouts = {window: self._layouts.build(singles, longer, window) for window in self._windows}
        return StepTokens(sent[0], sent[1], sent[2], sent[3], layouts)

    def _prompt_logprobs(
        self, plan: StepPlan, span_of: dict[int, Span], hidden: torch.Tensor
    ) -> dict[int, tuple[TokenLogprobs, ...]]:
        found = {}
        for number, chunk in enumerate(plan.chunks):
            wanted, sequence = chunk.sequence.params.prompt_logprobs, chunk.sequence
            following = sequence.tokens[chunk.start + 1 : min(chunk.start + chunk.count + 1, sequence.prompt_size)]
            if wanted is None or not following:
                continue
            begin = span_of[number].begin
            logits = self._decoder.logits(hidden[begin : begin + len(following)])
            report = describe(logits, torch.tensor(following, device=self._device), wanted)
            found[number] = tuple(_logprobs(one) for one in zip(*report, strict=True))
        return found


def _order(chunks: tuple[Chunk, ...]) -> list[int]:
    """Single tokens first, from short sequences to long ones, then chunks: by their numbers."""
    return sorted(range(len(chunks)), key=lambda number: (chunks[number].count > 1, chunks[number].start))


def _spans(chunks: list[Chunk]) -> list[Span]:
    spans: list[Span] = []
    begin = 0
    for chunk in chunks:
        spans.append(Span(begin, begin + chunk.count, chunk.start, chunk.sequence.slot))
        begin += chunk.count
    return spans


def _logprobs(report: Report) -> TokenLogprobs:
    logprob, rank, ids, values = report
    return TokenLogprobs(float(logprob), int(rank), tuple(zip(ids.tolist(), values.tolist(), strict=True)))


def _cache_bytes(device: torch.device, options: EngineOptions) -> int:
    """On a GPU what its share has left; on a CPU half of what is free, which is used as it is needed."""
    if device.type != "cuda":
        return max(DEFAULT_CACHE_BYTES, (free_host_bytes() or 0) // 2)
    free, total = torch.cuda.mem_get_info(device)
    return int(free - (1 - options.memory_share) * total) - _RESERVE_BYTES
