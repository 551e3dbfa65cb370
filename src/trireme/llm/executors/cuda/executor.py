"""The executor for NVIDIA GPUs: steps of one token per sequence, and small prompts, are recorded by size and replayed.

Nothing on the way of a step waits for the device: the tokens that a step brings stay there as input of the next, and
are copied to the host beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from trireme.llm.executors.cache_dtype import cache_dtype
from trireme.llm.executors.cuda.decoder import CudaDecoder, PagedCache, StepTensors
from trireme.llm.executors.cuda.packing import (
    RING,
    InputRing,
    Ints,
    KnownBlocks,
    chunk_rows,
    count_tiles,
    cut_into_tiles,
    send_blocks,
    single_rows,
)
from trireme.llm.executors.cuda.prompt_inputs import prompt_inputs, sampled_ends
from trireme.llm.executors.cuda.prompt_sizes import PromptSizes, is_batch, is_small, sizes_for
from trireme.llm.executors.cuda.recorded_step import RecordedStep, StepRecorder, give_memory_back
from trireme.llm.executors.cuda.step_handle import StepHandle
from trireme.llm.executors.cuda.warm_ups import WARM_REACHES, Preparations
from trireme.llm.executors.cuda.weights import DecoderWeights
from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.port import LOGPROB_ROWS, StepResult, WarmUp
from trireme.llm.executors.torch.memory import cache_bytes
from trireme.llm.kernels import drawing, elementwise
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions, SpeculationMode
from trireme.llm.sampling.reports import Report, describe, told
from trireme.llm.sampling.rows import all_sampled_rows, fail_without_tokens
from trireme.llm.sampling.torch_sampler import TorchSampler
from trireme.llm.step_plan import Chunk, StepPlan

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
_RESERVE_BYTES = 2 << 30
"""Left for what steps need in passing."""


class CudaExecutor:
    """Implements `Executor` for one GPU."""

    is_async = True
    takes_drafts = True
    is_preparing = False

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        options: EngineOptions,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.spec = spec
        kept_as = cache_dtype(options, dtype)
        room = _cache_bytes(spec, options, device, dtype) if options.cache_bytes is None else 0
        limits = limits_for(spec, options, default_cache_bytes=room, item_bytes=kept_as.itemsize)
        self.limits = replace(limits, chooses_later=True)
        blocks, slots = self.limits.block_count, options.max_sequences
        cache = PagedCache(spec, blocks, options.block_size, slots, device, kept_as)
        self._decoder = CudaDecoder(spec, weights, cache, slots, device, dtype, options.is_batch_invariant)
        self._cache, self._weights, self._device, self._dtype = cache, weights, device, dtype
        self._stream = torch.cuda.Stream(device)
        self._spare_slot = slots
        self._last_tokens = torch.zeros(slots + 1, dtype=torch.int32, device=device)
        self._sampler = TorchSampler(spec, device, drawing)
        self._known = KnownBlocks(slots + 1, options.block_size, cache.tables.shape[1])
        self._buckets = [size for size in BUCKETS if size < slots] + [slots]
        self._decodes: dict[tuple[int, int], RecordedStep] = {}
        self._prompts: dict[PromptSizes, RecordedStep] = {}
        self._compiled: set[Hashable] = set()
        """Kinds of steps that are not recorded, whose kernels have been compiled."""
        self._has_graphs = options.has_graphs
        self._verifies = options.speculation is not SpeculationMode.OFF
        self._recorder = StepRecorder()
        most = options.max_step_tokens + slots
        self._inputs = InputRing(8 * most + 2 * blocks + 4096, device)
        self._outputs = [torch.empty(most, dtype=torch.int32).pin_memory() for _ in range(RING)]

    def warm_ups(self) -> list[WarmUp]:
        """None where nothing is recorded: then no step is worth a wait before it comes."""
        if not self._has_graphs:
            return []
        prepare = Preparations(
            self._on_stream(self._recorded_decode),
            self._on_stream(self._recorded_prompt),
            self._on_stream(self._compile),
            self._on_stream(self._compile_draws),
        )
        splits = self._decoder.chunk_splits_for(1, self.spec.max_positions)
        return prepare.warm_ups(self._buckets, self.spec.max_positions, splits, self._verifies)

    def _on_stream(self, prepare: Callable[..., object]) -> Callable[..., None]:
        def run(*sizes: object) -> None:
            with torch.cuda.stream(self._stream):
                prepare(*sizes)

        return run

    def submit(self, plan: StepPlan) -> StepHandle:
        """Begins a step."""
        self._inputs.begin_step()
        for sequence in plan.joined:
            self._known.forget(sequence.slot)
        self._take_stream()
        if any(chunk.sequence.wants_prompt_logprobs for chunk in plan.chunks):
            return self._mixed(plan.chunks)
        if is_batch(plan):
            return self._decode(plan.chunks)
        if self._has_graphs and is_small(plan):
            return self._small_prompts(plan.chunks)
        return self._mixed(plan.chunks)

    def _take_stream(self) -> None:
        """Lets the calling thread stay on the executor's stream: to enter and leave it takes longer than to look."""
        if torch._C._cuda_getCurrentRawStream(self._stream.device_index) != self._stream.cuda_stream:
            torch.cuda.set_stream(self._stream)

    def choose(self, handle: StepHandle) -> None:
        """Chooses the tokens of a step that `submit` left open."""
        if handle.chosen is None:
            self._take_stream()
            self._choose(handle)

    def collect(self, handle: StepHandle) -> StepResult:
        """Waits for a step."""
        assert handle.chosen is not None
        handle.chosen.synchronize()
        tokens = handle.host[: len(handle.rows)].tolist()
        if min(tokens, default=0) < 0:
            tokens = fail_without_tokens(tokens, handle.rows)
        prompts = {
            number: tuple(one for part in parts for one in told(part)) for number, parts in handle.prompts.items()
        }
        return StepResult(tokens, handle.logprobs.told(), prompts)

    def copy_blocks(self, copies: Items[tuple[int, int]]) -> None:
        """Copies blocks of the cache."""
        with torch.cuda.stream(self._stream):
            sources, targets = self._sampler.send(np.array(copies, np.int64).T.copy())
            for blocks in self._cache.copied():
                blocks.index_copy_(1, targets, blocks.index_select(1, sources))

    def close(self) -> None:
        """Gives the device's memory back."""
        self._stream.synchronize()
        self._decodes.clear()
        self._prompts.clear()
        del self._decoder, self._cache, self._weights
        give_memory_back()

    def _decode(self, chunks: Items[Chunk]) -> StepHandle:
        """One token of each sequence."""
        count = len(chunks)
        bucket = next(size for size in self._buckets if size >= count)
        packed = single_rows(chunks, bucket, self._spare_slot)
        send_blocks(self._known.missing(chunks, packed), self._cache.tables, self._inputs)
        longest = max(chunk.start for chunk in chunks) + 1
        if not self._has_graphs:
            splits = self._decoder.splits_for(bucket, longest)
            with self._preparing((bucket, splits)):
                logits, tokens = self._decode_step(self._inputs.send(packed), bucket, splits)
            return self._finish(chunks, logits[:count], tokens[:count])
        recorded = self._play(self._recorded_decode(bucket, longest), packed)
        return self._finish(chunks, recorded.logits[:count], recorded.tokens[:count])

    def _play(self, recorded: RecordedStep, inputs: Ints) -> RecordedStep:
        """Runs a recorded step with these inputs."""
        self._inputs.send(inputs, recorded.inputs)
        recorded.graph.replay()
        return recorded

    def _recorded_decode(self, bucket: int, longest: int) -> RecordedStep:
        reach = 256
        while reach < longest:
            reach *= 2
        splits = self._decoder.splits_for(bucket, reach)
        if (bucket, splits) not in self._decodes:
            self._decoder.prepare_scratch(splits)
            inputs = torch.from_numpy(single_rows((), bucket, self._spare_slot)).to(self._device).view(-1)
            self._decodes[bucket, splits] = self._record(inputs, lambda: self._decode_step(inputs, bucket, splits))
        return self._decodes[bucket, splits]

    def _decode_step(self, rows: torch.Tensor, count: int, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All of a step of one token per row: may be recorded."""
        x, slots, positions = self._begin(rows, count)
        x = self._decoder.run(x, self._single_tokens(slots, positions, splits))
        return self._choose_largest(x, slots)

    def _single_tokens(self, slots: torch.Tensor, positions: torch.Tensor, splits: int) -> StepTensors:
        """Rows of one token each. Batch-invariant they are chunks of one, as one kernel then attends for all tokens."""
        if not self._decoder.is_batch_invariant:
            return StepTensors(slots, positions, len(slots), splits, None)
        rows = torch.arange(len(slots), dtype=torch.int32, device=self._device)
        return StepTensors(slots, positions, 0, 1, torch.stack([slots, rows, torch.ones_like(rows), positions], 1))

    def _small_prompts(self, chunks: Items[Chunk]) -> StepHandle:
        """A few tokens of prompts, and tokens beside them, in one recorded step."""
        sample_count = sum(len(chunk.sampled) for chunk in chunks)
        longest = max(chunk.start + chunk.count for chunk in chunks)
        splits = self._decoder.chunk_splits_for(count_tiles(chunks), longest)
        sizes = sizes_for(sum(chunk.count for chunk in chunks), splits, sample_count)
        recorded = self._recorded_prompt(sizes)
        send_blocks(self._known.missing(chunks), self._cache.tables, self._inputs)
        self._play(recorded, prompt_inputs(chunks, sizes, self._spare_slot))
        return self._finish(chunks, recorded.logits[:sample_count], recorded.tokens[:sample_count])

    def _recorded_prompt(self, sizes: PromptSizes) -> RecordedStep:
        if sizes not in self._prompts:
            self._decoder.prepare_chunk_scratch(sizes.splits)
            inputs = torch.from_numpy(prompt_inputs((), sizes, self._spare_slot)).to(self._device)
            self._prompts[sizes] = self._record(inputs, lambda: self._prompt_step(inputs, sizes))
        return self._prompts[sizes]

    def _compile(self, sizes: PromptSizes) -> None:
        """Runs a step of nobody's tokens, the first one as a single token, as large steps have them."""
        inputs = torch.from_numpy(prompt_inputs((), sizes, self._spare_slot)).to(self._device)
        with self._preparing():
            self._prompt_step(inputs, sizes, singles=0 if self._decoder.is_batch_invariant else 1)
        self._stream.synchronize()

    def _compile_draws(self) -> None:
        with self._preparing():
            self._sampler.prepare()
        self._stream.synchronize()

    def _prompt_step(
        self, inputs: torch.Tensor, sizes: PromptSizes, singles: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count, samples = sizes.tokens, sizes.samples
        rows, tiles, ends, slots_of_ends = inputs.split([4 * count, 4 * sizes.tiles, samples, samples])
        x, slots, positions = self._begin(rows, count)
        x = self._decoder.run(x, StepTensors(slots, positions, singles, 1, tiles.view(-1, 4), sizes.splits), ends)
        return self._choose_largest(x, slots_of_ends)

    def _mixed(self, chunks: Items[Chunk]) -> StepHandle:
        """Single tokens first, then chunks; not recorded, as no two such steps are alike."""
        ordered = [chunk for chunk in chunks if chunk.count == 1] + [chunk for chunk in chunks if chunk.count > 1]
        singles = 0 if self._decoder.is_batch_invariant else sum(chunk.count == 1 for chunk in ordered)
        count = sum(chunk.count for chunk in ordered)
        packed = chunk_rows(ordered)
        tiles_here = np.array(cut_into_tiles(ordered[singles:], singles), dtype=np.int32)
        ends = np.array(sampled_ends(ordered)[0], dtype=np.int32)
        send_blocks(self._known.missing(ordered), self._cache.tables, self._inputs)
        rows, tiles, ends_there = (self._inputs.send(part) for part in (packed, tiles_here, ends))
        splits = self._decoder.splits_for(max(singles, 1), max(chunk.start for chunk in ordered) + 1)
        with self._preparing((count.bit_length(), singles.bit_length(), splits, len(ends).bit_length())):
            x, slots, positions = self._begin(rows, count)
            tiles_there = tiles.view(-1, 4) if singles < len(ordered) else None
            step = StepTensors(slots, positions, singles, splits, tiles_there)
            if any(chunk.prompt_targets for chunk in chunks):
                x = self._decoder.run(x, step)
                prompts = self._prompt_reports(chunks, ordered, x)
                x = x.index_select(0, ends_there)
            else:
                x, prompts = self._decoder.run(x, step, ends_there), None
            if not len(ends):
                return self._finish([], x, slots[:0], prompts)
            logits, tokens = self._choose_largest(x, slots.index_select(0, ends_there))
        places = iter(range(len(ends)))
        rows_of = {id(chunk): [next(places) for _ in chunk.sampled] for chunk in ordered}
        order = [row for chunk in chunks for row in rows_of[id(chunk)]]
        if order != sorted(order):
            back = self._inputs.send(np.array(order, dtype=np.int32))
            logits, tokens = logits.index_select(0, back), tokens.index_select(0, back)
        return self._finish(chunks, logits, tokens, prompts)

    def _prompt_reports(self, chunks: Items[Chunk], ordered: Items[Chunk], x: torch.Tensor) -> dict[int, list[Report]]:
        """What is to be told of prompts' tokens, from the hidden states of the chunks in their new order."""
        numbers = {id(chunk): number for number, chunk in enumerate(chunks)}
        found: dict[int, list[Report]] = {}
        begin = 0
        for chunk in ordered:
            targets = chunk.prompt_targets
            for first in range(0, len(targets), LOGPROB_ROWS):
                part = self._inputs.send(np.array(targets[first : first + LOGPROB_ROWS], dtype=np.int32))
                logits = self._decoder.logits(x[begin + first : begin + first + len(part)])
                report = describe(logits, part, chunk.sequence.params.prompt_logprobs or 0)
                found.setdefault(numbers[id(chunk)], []).append(report)
            begin += chunk.count
        return found

    def _begin(self, rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Embeddings, slots and positions of packed rows."""
        x = torch.empty((count, self.spec.hidden_size), dtype=self._dtype, device=self._device)
        slots = torch.empty(count, dtype=torch.int32, device=self._device)
        positions = torch.empty(count, dtype=torch.int32, device=self._device)
        elementwise.begin_decode(
            rows.view(-1, 4),
            self._last_tokens,
            self._weights.embedding,
            self._cache.tables,
            slots,
            positions,
            x,
            self._cache.block_size,
            self.spec.embedding_scale,
        )
        return x, slots, positions

    def _choose_largest(self, x: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and for each row the most likely token, which becomes the input of its slot's next step."""
        logits = self._decoder.logits(x)
        return logits, elementwise.take_largest(logits, slots, self._last_tokens)

    @contextmanager
    def _preparing(self, kind: Hashable = None) -> Iterator[None]:
        """While something is made ready; where a kind is named, the first time alone."""
        self.is_preparing = kind is None or kind not in self._compiled
        try:
            yield
            if kind is not None:
                self._compiled.add(kind)
        finally:
            self.is_preparing = False

    def _record(self, inputs: torch.Tensor, step: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> RecordedStep:
        self._stream.synchronize()
        with self._preparing():
            step()  # compiles what is not compiled yet
        self._stream.synchronize()  # not part of it: here a device that hangs is waited for
        with self._preparing():
            return self._recorder.record(inputs, step)

    def _finish(
        self,
        chunks: Items[Chunk],
        logits: torch.Tensor,
        tokens: torch.Tensor,
        prompts: dict[int, list[Report]] | None = None,
    ) -> StepHandle:
        """Chooses the tokens, unless that of some row depends on one that is under way."""
        rows = all_sampled_rows(chunks)
        slots = [row.sequence.slot for row in rows]
        handle = StepHandle(self._outputs[self._inputs.turn], rows, slots, logits, tokens, prompts or {})
        if not any(chunk.is_pending and chunk.sequence.params.needs_history for chunk in chunks):
            self._choose(handle)
        return handle

    def _choose(self, handle: StepHandle) -> None:
        """Chooses tokens where the largest logit does not decide, and sends all of them to the host."""
        rows, tokens = handle.rows, handle.tokens
        special = handle.chosen_rows()
        if special:
            assert handle.logits is not None
            tokens = tokens.clone()
            sequences = [rows[index].sequence for index in special]
            positions = [rows[index].position for index in special]
            chosen, handle.logprobs = self._sampler.choose(handle.logits, special, sequences, positions)
            places = self._inputs.send(np.array(special, dtype=np.int32))
            slots = self._inputs.send(np.array([handle.slots[index] for index in special], dtype=np.int32))
            chosen = torch.where(tokens.index_select(0, places) < 0, elementwise.NO_TOKEN, chosen)
            tokens.index_copy_(0, places.long(), chosen)
            self._last_tokens.index_copy_(0, slots.long(), chosen.clamp(min=0))
        handle.logits = None  # what is behind it takes its memory again
        handle.host[: len(rows)].copy_(tokens, non_blocking=True)
        handle.chosen = torch.cuda.Event()
        handle.chosen.record(self._stream)


def _cache_bytes(spec: DecoderSpec, options: EngineOptions, device: torch.device, dtype: torch.dtype) -> int:
    """What the device has left for the cache."""
    return cache_bytes(device, options, _RESERVE_BYTES + _logit_bytes(spec, options, dtype))


def _logit_bytes(spec: DecoderSpec, options: EngineOptions, dtype: torch.dtype) -> int:
    """What recorded steps keep for their logits."""
    if not options.has_graphs:
        return 0
    rows = sum(size for size in BUCKETS if size < options.max_sequences) + options.max_sequences
    return len(WARM_REACHES) * rows * spec.vocab_size * dtype.itemsize
