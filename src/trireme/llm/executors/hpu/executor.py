"""The executor for Gaudi accelerators: steps are filled up to a few shapes, each of which is recorded once."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from trireme.llm.executors.hpu.buckets import StepBuckets, buckets, fit
from trireme.llm.executors.hpu.software import DEVICE, GaudiSoftware, Recorded
from trireme.llm.executors.hpu.steps import ChunkStep, DecodeStep
from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.port import StepResult, WarmUp
from trireme.llm.executors.torch.attention import scoring_of
from trireme.llm.executors.torch.cache import BlockTables, Integers, PagedCache, begun_block
from trireme.llm.executors.torch.decoder import Decoder
from trireme.llm.executors.torch.memory import cache_bytes
from trireme.llm.executors.torch.results import LogitRows, ResultBuilder, logit_rows
from trireme.llm.executors.torch.weights import gather_weights
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.step_plan import Chunk, StepPlan

_SMALLEST_CHUNK = 32
_FEWEST_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class _Played:
    """What a graph has given, still on the device."""

    logits: torch.Tensor
    likeliest: torch.Tensor


class HpuExecutor:
    """Plays graphs in the thread that calls it; tokens that are not simply the most likely are chosen on the host."""

    is_async = False
    takes_drafts = True

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: Iterable[tuple[str, torch.Tensor]],
        options: EngineOptions,
        software: GaudiSoftware,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        """Takes the tensors over."""
        self.spec = replace(spec, max_positions=min(spec.max_positions, options.max_length or spec.max_positions))
        self.is_preparing = False
        self._software = software
        self._device = device or torch.device(DEVICE)
        with torch.inference_mode():
            weights = gather_weights(self.spec, tensors, self._device, dtype)
            self.limits = limits_for(self.spec, options, cache_bytes(self._device, options), dtype.itemsize)
            self._pages = PagedCache(self.spec, self.limits.block_count, self.limits.block_size, self._device, dtype)
            scoring = scoring_of(self.spec, self._device)
            decoder = Decoder(self.spec, weights, self._pages, scoring, has_static_shapes=True)
            self._results = ResultBuilder(self.spec, torch.device("cpu"))
        width = -(-self.spec.max_positions // self.limits.block_size)
        self._tables = BlockTables(self.limits.max_sequences, width)
        self._buckets = StepBuckets(
            buckets(self.limits.max_sequences),
            buckets(min(self.limits.max_step_tokens, self.spec.max_positions), _SMALLEST_CHUNK),
            buckets(width, _FEWEST_BLOCKS),
        )
        modules = (kind(decoder, self.limits.block_size, dtype) for kind in (DecodeStep, ChunkStep))
        self._decode, self._chunk = (software.record(one) if options.has_graphs else one for one in modules)
        self._has_graphs = options.has_graphs
        self._known: set[tuple[str, int, int, int]] = set()

    def warm_ups(self) -> list[WarmUp]:
        """Every graph that a step may need; all before the first request, which would wait long for its own."""
        if not self._has_graphs:
            return []
        shapes = [(True, rows, blocks) for rows, blocks in self._buckets.decode_shapes()]
        shapes += [(False, count, blocks) for count, blocks in self._buckets.chunk_shapes(self.limits.block_size)]
        return [
            WarmUp(f"{count} tokens over {width} blocks", partial(self._warm, is_decode, count, width), is_first=True)
            for is_decode, count, width in shapes
        ]

    def _warm(self, is_decode: bool, count: int, width: int) -> None:
        table = np.full((count, width) if is_decode else width, self._pages.padding_block, np.int64)
        with torch.inference_mode():
            self._play(is_decode, self._padding(count), table, list(range(count)) if is_decode else [0])

    def submit(self, plan: StepPlan) -> StepResult:
        self._tables.forget(plan.joined)
        for chunk in plan.chunks:
            self._tables.update(chunk.sequence)
        with torch.inference_mode():
            self._clear_begun(plan.chunks)
            return self._run(plan)

    def _clear_begun(self, chunks: Items[Chunk]) -> None:
        """Makes the blocks ready that tokens begin and do not fill; one by one, as above all shapes are few."""
        for chunk in chunks:
            place = begun_block(chunk.start, chunk.count, self.limits.block_size)
            if place is not None:
                block = int(self._tables.of(chunk.sequence.slot)[place])
                self._pages.clear(torch.tensor([block], device=self._device))

    def choose(self, handle: StepResult) -> None:
        """Nothing is left to choose: the tokens before are known."""

    def collect(self, handle: StepResult) -> StepResult:
        return handle

    def copy_blocks(self, copies: Items[tuple[int, int]]) -> None:
        with torch.inference_mode():
            for source, target in copies:  # one by one: another number of them would be another shape
                places = torch.tensor([[source], [target]], device=self._device)
                self._pages.copy(places[0], places[1])
        self._software.finish()

    def close(self) -> None:
        del self._decode, self._chunk, self._pages, self._tables

    def _run(self, plan: StepPlan) -> StepResult:
        begins = np.cumsum([0, *(chunk.count for chunk in plan.chunks)])[:-1].tolist()
        wanted = logit_rows(plan, begins)
        singles = [number for number, chunk in enumerate(plan.chunks) if chunk.count == 1]
        played: list[_Played] = []
        places: dict[int, tuple[int, int]] = {}
        if singles:
            played.append(self._play_singles([plan.chunks[number] for number in singles]))
            places.update({begins[number]: (0, row) for row, number in enumerate(singles)})
        for number, chunk in enumerate(plan.chunks):
            if chunk.count > 1:
                rows = [row - begins[number] for row in wanted.rows if 0 <= row - begins[number] < chunk.count]
                places.update({begins[number] + row: (len(played), place) for place, row in enumerate(rows)})
                played.append(self._play_chunk(chunk, rows))
        return self._gather(plan, wanted, played, places)

    def _gather(
        self, plan: StepPlan, wanted: LogitRows, played: list[_Played], places: dict[int, tuple[int, int]]
    ) -> StepResult:
        tokens = [one.likeliest.cpu() for one in played]
        chosen = [int(tokens[one][row]) for one, row in (places[row] for row in wanted.rows[: len(wanted.sampled)])]
        fetched: dict[int, torch.Tensor] = {}

        def logits(first: int, last: int) -> torch.Tensor:
            found = []
            for one, row in (places[row] for row in wanted.rows[first:last]):
                if one not in fetched:
                    fetched[one] = played[one].logits.cpu()
                found.append(fetched[one][row])
            return torch.stack(found)

        return self._results.build(plan, wanted, logits, chosen)

    def _play_singles(self, chunks: Items[Chunk]) -> _Played:
        rows = fit(len(chunks), self._buckets.rows)
        inputs = self._padding(rows)
        size = self.limits.block_size
        used = [-(-(chunk.start + 1) // size) for chunk in chunks]
        table = np.full((rows, fit(max(used), self._buckets.blocks)), self._pages.padding_block, np.int64)
        for row, chunk in enumerate(chunks):
            own = self._tables.of(chunk.sequence.slot)
            table[row, : used[row]] = own[: used[row]]
            slot = own[chunk.start // size] * size + chunk.start % size
            inputs[:, row] = chunk.sequence.tokens[chunk.start], chunk.start, chunk.sequence.is_long, slot
        return self._play(True, inputs, table, range(rows))

    def _play_chunk(self, chunk: Chunk, rows: list[int]) -> _Played:
        """The logits of one row, or of all where the prompt's probabilities are asked for: two graphs, not many."""
        end, size = chunk.start + chunk.count, self.limits.block_size
        inputs = self._padding(fit(chunk.count, self._buckets.tokens))
        used = -(-end // size)
        table = np.full(fit(used, self._buckets.blocks), self._pages.padding_block, np.int64)
        table[:used] = self._tables.of(chunk.sequence.slot)[:used]
        positions = np.arange(chunk.start, end)
        inputs[0, : chunk.count] = chunk.tokens
        inputs[1, : chunk.count] = positions
        inputs[2, : chunk.count] = chunk.sequence.is_long
        inputs[3, : chunk.count] = table[positions // size] * size + positions % size
        room = 1 if len(rows) <= 1 else inputs.shape[1]
        return self._play(False, inputs, table, [*rows, *[0] * (room - len(rows))])

    def _padding(self, count: int) -> Integers:
        """Rows that write where nobody looks."""
        inputs: Integers = np.zeros((4, count), np.int64)
        inputs[3] = self._pages.padding_block * self.limits.block_size
        return inputs

    def _play(self, is_decode: bool, inputs: Integers, blocks: Integers, rows: Items[int]) -> _Played:
        """A step's end stands on both sides of the graph: inputs are there before, and results are asked for after."""
        key = ("decode" if is_decode else "chunk", inputs.shape[1], blocks.shape[-1], len(rows))
        self.is_preparing = key not in self._known
        graph: Recorded = self._decode if is_decode else self._chunk
        sent = [torch.from_numpy(part).to(self._device) for part in (inputs, blocks, np.array(rows, np.int64))]
        self._software.finish()
        logits, likeliest = graph(*sent)
        self._software.finish()
        self._known.add(key)
        self.is_preparing = False
        return _Played(logits, likeliest)
