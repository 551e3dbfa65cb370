"""The executor for NVIDIA GPUs: steps of one token per sequence are recorded per batch size and replayed.

Nothing on the way of a step waits for the device: the tokens that a step brings stay there as input of the next, and
are copied to the host beside it.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch

from trireme.llm.executors.cuda.decoder import CudaDecoder, PagedCache, StepTensors
from trireme.llm.executors.cuda.weights import DecoderWeights
from trireme.llm.executors.port import StepResult
from trireme.llm.kernels import elementwise
from trireme.llm.kernels.chunk_attention import CHUNK_ROWS
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling.torch_sampler import TorchSampler
from trireme.llm.scheduler import Chunk, SchedulerLimits, StepPlan

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
_RING = 4
"""Steps whose inputs or outputs may be on their way at once, with some to spare."""
_RESERVE_BYTES = 2 << 30
"""Left for what steps need in passing."""


@dataclass(slots=True)
class _Handle:
    """A step under way."""

    tokens: torch.Tensor
    """On the host, once the event has passed."""
    count: int
    event: torch.cuda.Event
    logprobs: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]


class CudaExecutor:
    """Implements `Executor` for one GPU."""

    is_async = True

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        options: EngineOptions,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.spec = spec
        blocks = _block_count(spec, options, device, dtype)
        self.limits = SchedulerLimits(
            options.block_size, blocks, options.max_sequences, options.max_step_tokens, options.has_prefix_cache
        )
        cache = PagedCache(spec, blocks, options.block_size, options.max_sequences, device, dtype)
        self._decoder = CudaDecoder(spec, weights, cache, options.max_sequences, device, dtype)
        self._cache, self._weights, self._device, self._dtype = cache, weights, device, dtype
        self._stream = torch.cuda.Stream(device)
        self._last_tokens = torch.zeros(options.max_sequences + 1, dtype=torch.int32, device=device)
        self._sampler = TorchSampler(spec, device)
        self._known = np.zeros(options.max_sequences + 1, dtype=np.int64)
        """By slot: how many of its blocks the table on the device has."""
        self._buckets = [size for size in BUCKETS if size < options.max_sequences] + [options.max_sequences]
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._has_graphs = options.has_graphs
        self._pool = torch.cuda.graph_pool_handle() if options.has_graphs else None
        self._inputs = _Ring(4 * (options.max_step_tokens + options.max_sequences) * 3, device)
        self._outputs = [torch.empty(options.max_sequences, dtype=torch.int32).pin_memory() for _ in range(_RING)]
        self._turn = 0

    def submit(self, plan: StepPlan) -> _Handle:
        """Begins a step."""
        self._turn = (self._turn + 1) % _RING
        for sequence in plan.joined:
            self._known[sequence.slot] = 0
            self._sampler.join(sequence)
        with torch.cuda.stream(self._stream):
            if all(chunk.count == 1 for chunk in plan.chunks):
                return self._decode(plan.chunks)
            return self._mixed(plan.chunks)

    def collect(self, handle: _Handle) -> StepResult:
        """Waits for a step."""
        handle.event.synchronize()
        tokens = handle.tokens[: handle.count].tolist()
        return StepResult(tokens, {index: _logprobs(rows) for index, rows in handle.logprobs.items()})

    def close(self) -> None:
        """Gives the device's memory back."""
        torch.cuda.synchronize(self._device)
        self._graphs.clear()
        del self._decoder, self._cache, self._weights
        torch.cuda.empty_cache()

    def warm_up(self, sizes: Items[int]) -> None:
        """Records the steps of those batch sizes before anybody waits for one."""
        with torch.cuda.stream(self._stream):
            for size in sizes:
                self._graph(self._bucket(size), 1)

    def _bucket(self, count: int) -> int:
        return next(size for size in self._buckets if size >= count)

    def _decode(self, chunks: Items[Chunk]) -> _Handle:
        count = len(chunks)
        bucket = self._bucket(count)
        packed = self._pack_rows(chunks, bucket)
        updates = self._table_updates(chunks, packed)
        device_rows = self._inputs.send(packed.reshape(-1), self._turn).view(-1, 4)
        if updates is not None:
            self._apply(updates)
        longest = max(chunk.start for chunk in chunks) + 1
        if self._has_graphs:
            graph = self._graph(bucket, longest)
            graph.rows.copy_(device_rows)
            graph.graph.replay()
            logits, tokens = graph.logits, graph.tokens
        else:
            logits, tokens = self._decode_step(device_rows, self._decoder.splits_for(bucket, longest))
        return self._finish(chunks, logits[:count], tokens[:count])

    def _decode_step(self, rows: torch.Tensor, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All of a step of one token per row: may be recorded."""
        count = rows.shape[0]
        x = torch.empty((count, self.spec.hidden_size), dtype=self._dtype, device=self._device)
        slots = torch.empty(count, dtype=torch.int32, device=self._device)
        positions = torch.empty(count, dtype=torch.int32, device=self._device)
        self._begin(rows, slots, positions, x)
        x = self._decoder.run(x, StepTensors(slots, positions, count, splits, None))
        logits = self._decoder.logits(x)
        tokens = logits.argmax(-1).to(torch.int32)
        self._last_tokens.index_copy_(0, slots.long(), tokens)
        return logits, tokens

    def _begin(self, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, x: torch.Tensor) -> None:
        elementwise.begin_decode(
            rows,
            self._last_tokens,
            self._weights.embedding,
            self._cache.tables,
            slots,
            positions,
            x,
            self._cache.block_size,
            self.spec.embedding_scale,
        )

    def _graph(self, bucket: int, longest: int) -> _Graph:
        reach = 256
        while reach < longest:
            reach *= 2
        splits = self._decoder.splits_for(bucket, reach)
        key = (bucket, splits)
        if key not in self._graphs:
            self._graphs[key] = self._record(bucket, splits)
        return self._graphs[key]

    def _record(self, bucket: int, splits: int) -> _Graph:
        rows = torch.zeros((bucket, 4), dtype=torch.int32, device=self._device)
        rows[:, 0] = self.limits.max_sequences
        rows[:, 2] = -1
        rows[:, 3] = -1
        self._decoder.prepare_scratch(splits)
        self._decode_step(rows, splits)  # compiles what is not compiled yet
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            logits, tokens = self._decode_step(rows, splits)
        return _Graph(graph, rows, logits, tokens)

    def _mixed(self, chunks: Items[Chunk]) -> _Handle:
        """Single tokens first, then chunks; not recorded, as no two such steps are alike."""
        ordered = [chunk for chunk in chunks if chunk.count == 1] + [chunk for chunk in chunks if chunk.count > 1]
        singles = sum(chunk.count == 1 for chunk in ordered)
        packed = self._pack_chunks(ordered)
        updates = self._table_updates(ordered, packed[:singles])
        tiles = _tiles(ordered, singles)
        ends = np.cumsum([chunk.count for chunk in ordered], dtype=np.int64) - 1
        order = {id(chunk): index for index, chunk in enumerate(ordered)}
        sampling = [chunk for chunk in chunks if chunk.samples]
        wanted = np.array([ends[order[id(chunk)]] for chunk in sampling], dtype=np.int32)
        sizes = [packed.size, tiles.size, wanted.size]
        sent = self._inputs.send(np.concatenate([packed.reshape(-1), tiles.reshape(-1), wanted]), self._turn)
        rows, tile_rows, ends_on_device = sent.split(sizes)
        if updates is not None:
            self._apply(updates)
        count = packed.shape[0]
        x = torch.empty((count, self.spec.hidden_size), dtype=self._dtype, device=self._device)
        slots = torch.empty(count, dtype=torch.int32, device=self._device)
        positions = torch.empty(count, dtype=torch.int32, device=self._device)
        self._begin(rows.view(-1, 4), slots, positions, x)
        longest = max(chunk.start for chunk in ordered) + 1
        splits = self._decoder.splits_for(max(singles, 1), longest)
        x = self._decoder.run(x, StepTensors(slots, positions, singles, splits, tile_rows.view(-1, 4)))
        if not sampling:
            return self._finish([], x[:0], slots[:0])
        logits = self._decoder.logits(x.index_select(0, ends_on_device.long()))
        tokens = logits.argmax(-1).to(torch.int32)
        self._last_tokens.index_copy_(0, slots.index_select(0, ends_on_device.long()).long(), tokens)
        return self._finish(sampling, logits, tokens)

    def _finish(self, chunks: Items[Chunk], logits: torch.Tensor, tokens: torch.Tensor) -> _Handle:
        """Chooses tokens where the largest logit does not decide, and sends all of them to the host."""
        logprobs = {}
        special = [index for index, chunk in enumerate(chunks) if not chunk.sequence.params.is_plain_greedy]
        if special:
            tokens = tokens.clone()
            sequences = [chunks[index].sequence for index in special]
            positions = [chunks[index].start + chunks[index].count for index in special]
            chosen, reported = self._sampler.choose(logits, special, sequences, positions)
            places = torch.tensor(special, device=self._device)
            tokens.index_copy_(0, places, chosen)
            slots = torch.tensor([sequence.slot for sequence in sequences], device=self._device)
            self._last_tokens.index_copy_(0, slots, chosen)
            logprobs = reported
        host = self._outputs[self._turn]
        host[: len(chunks)].copy_(tokens, non_blocking=True)
        event = torch.cuda.Event()
        event.record(self._stream)
        return _Handle(host, len(chunks), event, logprobs)

    def _pack_rows(self, chunks: Items[Chunk], bucket: int) -> np.ndarray:
        packed = np.empty((bucket, 4), dtype=np.int32)
        packed[:] = (self.limits.max_sequences, 0, -1, 0)
        packed[: len(chunks)] = [
            (
                chunk.sequence.slot,
                chunk.start,
                -1,
                -1 if chunk.is_pending else chunk.sequence.tokens[chunk.start],
            )
            for chunk in chunks
        ]
        return packed

    def _pack_chunks(self, chunks: Items[Chunk]) -> np.ndarray:
        packed = np.empty((sum(chunk.count for chunk in chunks), 4), dtype=np.int32)
        packed[:, 2] = -1
        first = 0
        for chunk in chunks:
            rows = packed[first : first + chunk.count]
            rows[:, 0] = chunk.sequence.slot
            rows[:, 1] = np.arange(chunk.start, chunk.start + chunk.count)
            rows[:, 3] = -1 if chunk.is_pending else chunk.sequence.tokens[chunk.start : chunk.start + chunk.count]
            first += chunk.count
        return packed

    def _table_updates(self, chunks: Items[Chunk], singles: np.ndarray) -> np.ndarray | None:
        """Blocks that the device's table lacks; one at the token's own place travels in its row and is not returned."""
        known, size = self._known, self.limits.block_size
        width = self._cache.tables.shape[1]
        places: list[int] = []
        blocks: list[int] = []
        for row, chunk in enumerate(chunks):
            sequence = chunk.sequence
            have, want = known[sequence.slot], len(sequence.blocks)
            if have == want:
                continue
            known[sequence.slot] = want
            if chunk.count == 1 and want == have + 1 and chunk.start // size == have:
                singles[row, 2] = sequence.blocks[-1]
                continue
            places += range(sequence.slot * width + int(have), sequence.slot * width + want)
            blocks += sequence.blocks[have:]
        return np.array([places, blocks], dtype=np.int32) if places else None

    def _apply(self, updates: np.ndarray) -> None:
        sent = torch.from_numpy(updates).to(self._device)
        self._cache.tables.view(-1).index_copy_(0, sent[0].long(), sent[1])


@dataclass(frozen=True, slots=True)
class _Graph:
    """A recorded step and where its inputs and outputs are."""

    graph: torch.cuda.CUDAGraph
    rows: torch.Tensor
    logits: torch.Tensor
    tokens: torch.Tensor


class _Ring:
    """Pinned memory by turns, so that a step's inputs are not overwritten before they are on the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._host = [torch.empty(size, dtype=torch.int32).pin_memory() for _ in range(_RING)]
        self._device = [torch.empty(size, dtype=torch.int32, device=device) for _ in range(_RING)]

    def send(self, values: np.ndarray, turn: int) -> torch.Tensor:
        host, device = self._host[turn][: values.size], self._device[turn][: values.size]
        host.numpy()[:] = values
        device.copy_(host, non_blocking=True)
        return device


def _tiles(chunks: Items[Chunk], singles: int) -> np.ndarray:
    rows = []
    first = singles
    for chunk in chunks[singles:]:
        for offset in range(0, chunk.count, CHUNK_ROWS):
            rows.append(
                (chunk.sequence.slot, first + offset, min(CHUNK_ROWS, chunk.count - offset), chunk.start + offset)
            )
        first += chunk.count
    return np.array(rows, dtype=np.int32)


def _logprobs(rows: tuple[torch.Tensor, ...]) -> TokenLogprobs:
    logprob, rank, ids, values = rows
    top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(float(logprob), int(rank), top)


def _block_count(spec: DecoderSpec, options: EngineOptions, device: torch.device, dtype: torch.dtype) -> int:
    per_block = PagedCache.bytes_per_block(spec, options.block_size, dtype)
    size = options.cache_bytes
    if size is None:
        free, total = torch.cuda.mem_get_info(device)
        size = int(free - (1 - options.memory_share) * total) - _RESERVE_BYTES
    most = options.max_sequences * -(-spec.max_positions // options.block_size)
    return max(1, min(size // per_block, most))
