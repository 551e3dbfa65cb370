"""The layers of a step, in launches: the same code for one token per sequence and for whole chunks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trireme.llm.executors.cuda.products import Products
from trireme.llm.executors.cuda.weights import DecoderWeights, Layer
from trireme.llm.kernels import elementwise
from trireme.llm.kernels.chunk_attention import ChunkScratch, chunk_attention
from trireme.llm.kernels.chunk_size import CHUNK_ROWS, SPLIT_TILES, tile_rows_for
from trireme.llm.kernels.decode_attention import DecodeScratch, decode_attention, splits_for
from trireme.llm.models.spec import DecoderSpec, RopeSpec

_LONG_ENOUGH_TO_SPLIT = 512
QK_NORMS = {"": 0, "rms": 1, "layer": 2}


@dataclass(slots=True)
class StepTensors:
    """Where a step's tokens belong, on the device. The first `decode_rows` rows are one token each of a sequence."""

    slots: torch.Tensor
    positions: torch.Tensor
    decode_rows: int
    splits: int
    tiles: torch.Tensor | None
    """Chunks behind those rows, cut as `chunk_attention` takes them."""
    chunk_splits: int = 1
    """Among how many programs the keys of such a tile are split."""


class PagedCache:
    """Keys and values of all layers, and the table that says which blocks a slot has."""

    def __init__(
        self, spec: DecoderSpec, blocks: int, block_size: int, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        shape = (spec.layer_count, blocks + 1, spec.kv_head_count, block_size, spec.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        width = min(-(-spec.max_positions // block_size), blocks) + 1
        self.tables = torch.full((slots + 1, width), blocks, dtype=torch.int32, device=device)
        """One more slot than sequences: rows without a sequence write there, into the block behind the last."""
        self.block_size = block_size

    def copied(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values in a type that PyTorch copies by index."""
        if self.keys.element_size() > 1:
            return self.keys, self.values
        return self.keys.view(torch.uint8), self.values.view(torch.uint8)


class CudaDecoder:
    """Runs tokens through the layers; owns the weights and the cache."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        cache: PagedCache,
        max_rows: int,
        device: torch.device,
        dtype: torch.dtype,
        is_batch_invariant: bool = False,
    ) -> None:
        self.spec, self.weights, self.cache = spec, weights, cache
        self.is_batch_invariant = is_batch_invariant
        self.device, self.dtype = device, dtype
        self._products = Products(spec, weights, device, dtype, is_batch_invariant)
        self._tables = {layer: _cosines(spec.rope_of(layer), spec.max_positions, device) for layer in (0,)}
        if spec.local_rope is not None:
            self._tables |= {
                layer: _cosines(spec.rope_of(layer), spec.max_positions, device) for layer in range(spec.layer_count)
            }
        rope = spec.rope
        self._rotates_inside = (
            rope is not None and rope.rotary_size == spec.head_size and not rope.is_interleaved and not spec.qk_norm
        )
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8
        self._scratch = DecodeScratch(max_rows, spec.head_count, spec.head_size, 1, device)
        self._scratches = {1: self._scratch}
        self._chunk_scratches: dict[int, ChunkScratch] = {}
        self._max_rows = max_rows

    def splits_for(self, rows: int, longest: int) -> int:
        """Among how many programs the keys of a row are split."""
        spec = self.spec
        if self.is_batch_invariant:
            return 1
        return splits_for(rows, spec.head_count, spec.kv_head_count, spec.head_size, self.processors, longest)

    def chunk_splits_for(self, tiles: int, longest: int) -> int:
        """Among how many programs the keys of a tile of a chunk are split."""
        if self.is_batch_invariant or tiles > SPLIT_TILES or longest <= _LONG_ENOUGH_TO_SPLIT:
            return 1
        return max(1, min(16, 2 * self.processors // self.spec.head_count))

    def run(self, x: torch.Tensor, step: StepTensors, ends: torch.Tensor | None = None) -> torch.Tensor:
        """Embeddings in, the last layer's output out, both `[rows, hidden]`; with `ends` that of those rows alone.

        Of the others the last layer makes keys and values: what is behind them nobody reads.
        """
        run_layer = self._parallel if self.spec.is_parallel else self._serial
        *layers, last = self.weights.layers
        for index, layer in enumerate(layers):
            x = run_layer(x, index, layer, step)
        if ends is None:
            return run_layer(x, len(layers), last, step)
        if not self.spec.is_parallel:
            return self._serial(x, len(layers), last, step, ends)
        if not self.is_batch_invariant:  # another cut of a product may be another last bit
            last = last.apart(self.spec)
        return self._parallel_ends(x, len(layers), last, step, ends)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Of rows of the last layer's output."""
        x = self._products.normed(x, self.weights.norm)
        logits = self._products.product(x, self.weights.head)
        if self.spec.logit_scale != 1.0:
            logits = logits * self.spec.logit_scale
        if self.spec.logit_softcap:
            logits = torch.tanh(logits / self.spec.logit_softcap) * self.spec.logit_softcap
        return logits

    def _serial(
        self, x: torch.Tensor, index: int, layer: Layer, step: StepTensors, ends: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert layer.o is not None
        assert layer.up is not None
        assert layer.mlp_norm is not None
        qkv = self._products.product(x, layer.qkv, norm=layer.attention_norm)
        attended = self._attended(qkv, index, layer, step)
        if ends is not None:
            if not len(ends):
                return x[:0]
            attended, x = attended.index_select(0, ends), x.index_select(0, ends)
        x = self._products.product(attended, layer.o, residual=x)
        inner = self._products.product(x, layer.up, norm=layer.mlp_norm, is_up=True)
        return self._products.product(inner, layer.down, residual=x)

    def _parallel(self, x: torch.Tensor, index: int, layer: Layer, step: StepTensors) -> torch.Tensor:
        """One row of scratch is `attention | mlp | qkv`: the last matrix reads the first two as one."""
        spec = self.spec
        width = spec.head_count * spec.head_size
        inner = width + spec.mlp_size
        row = torch.empty((x.shape[0], inner + spec.qkv_size), dtype=self.dtype, device=self.device)
        if layer.up is None and not spec.is_gated:
            joined = self._products.product(
                x,
                layer.qkv,
                norm=layer.attention_norm,
                activation=self._products.activation,
                activate_to=spec.mlp_size,
                out=row[:, width:],
            )
            qkv = joined[:, spec.mlp_size :]
            if joined.data_ptr() != row[:, width:].data_ptr():  # the vendor's library: not activated yet
                elementwise.activate_rows(joined[:, : spec.mlp_size], self._products.activation, row[:, width:inner])
        elif layer.up is None:
            joined = self._products.product(x, layer.qkv, norm=layer.attention_norm)
            elementwise.gate(joined[:, : 2 * spec.mlp_size], self._products.activation, out=row[:, width:inner])
            qkv = joined[:, 2 * spec.mlp_size :]
        else:
            assert layer.mlp_norm is not None
            qkv = self._products.product(x, layer.qkv, norm=layer.attention_norm)
            row[:, width:inner] = self._products.product(x, layer.up, norm=layer.mlp_norm, is_up=True)
        self._attend(qkv, index, layer, step, row[:, :width])
        return self._added(x, row[:, :inner], layer)

    def _parallel_ends(
        self, x: torch.Tensor, index: int, layer: Layer, step: StepTensors, ends: torch.Tensor
    ) -> torch.Tensor:
        """What becomes of some of the rows: with the first matrices apart, all behind keys and values is theirs."""
        if layer.up is None:
            return self._parallel(x, index, layer, step).index_select(0, ends)
        qkv = self._products.product(x, layer.qkv, norm=layer.attention_norm)
        attended = self._attended(qkv, index, layer, step).index_select(0, ends)
        if not len(ends):
            return x[:0]
        x = x.index_select(0, ends)
        inner = self._products.product(x, layer.up, norm=layer.mlp_norm, is_up=True)
        return self._added(x, torch.cat([attended, inner], 1), layer)

    def _added(self, x: torch.Tensor, row: torch.Tensor, layer: Layer) -> torch.Tensor:
        """What attention and MLP, side by side in a row, add to the input of their layer."""
        if layer.o is None:
            return self._products.product(row, layer.down, residual=x)
        width = self.spec.head_count * self.spec.head_size
        x = self._products.product(row[:, :width], layer.o, residual=x)
        return self._products.product(row[:, width:], layer.down, residual=x)

    def _attended(self, qkv: torch.Tensor, index: int, layer: Layer, step: StepTensors) -> torch.Tensor:
        width = self.spec.head_count * self.spec.head_size
        attended = torch.empty((qkv.shape[0], width), dtype=self.dtype, device=self.device)
        self._attend(qkv, index, layer, step, attended)
        return attended

    def _attend(self, qkv: torch.Tensor, index: int, layer: Layer, step: StepTensors, out: torch.Tensor) -> None:
        spec, cache = self.spec, self.cache
        keys, values = cache.keys[index], cache.values[index]
        rope = spec.rope_of(index)
        cosines = self._tables.get(index, self._tables[0])
        rows = step.decode_rows
        settings = {
            "heads": spec.head_count,
            "scale": spec.score_scale,
            "softcap": spec.attention_softcap,
            "window": spec.window_of(index),
        }
        inside = self._rotates_inside
        if rows < qkv.shape[0] or not inside:
            first = rows if inside else 0
            elementwise.rotate_and_store(
                qkv[first:],
                keys,
                values,
                cache.tables,
                step.slots[first:],
                step.positions[first:],
                cosines,
                heads=spec.head_count,
                is_interleaved=rope is not None and rope.is_interleaved,
                qk_norm=QK_NORMS[spec.qk_norm],
                qk_weight=layer.qk_weight,
                qk_bias=layer.qk_bias,
                eps=spec.norm_eps,
                offset=spec.norm_weight_offset,
            )
        if rows:
            decode_attention(
                qkv[:rows],
                keys,
                values,
                cache.tables,
                step.slots[:rows],
                step.positions[:rows],
                cosines if inside else None,
                out[:rows],
                self._scratch_for(step.splits),
                splits=step.splits,
                **settings,  # type: ignore[arg-type]
            )
        if step.tiles is not None:
            chunk_attention(
                qkv,
                keys,
                values,
                cache.tables,
                step.tiles,
                out,
                scratch=self._chunk_scratches.get(step.chunk_splits),
                is_uniform=self.is_batch_invariant,
                tile_rows=CHUNK_ROWS if self.is_batch_invariant else tile_rows_for(qkv.shape[0] - rows),
                **settings,  # type: ignore[arg-type]
            )

    def _scratch_for(self, splits: int) -> DecodeScratch:
        if splits not in self._scratches:
            spec = self.spec
            self._scratches[splits] = DecodeScratch(
                self._max_rows, spec.head_count, spec.head_size, splits, self.device
            )
        return self._scratches[splits]

    def prepare_scratch(self, splits: int) -> None:
        """Makes what steps with so many splits need, before such a step is recorded."""
        self._scratch_for(splits)

    def prepare_chunk_scratch(self, splits: int) -> None:
        """The same for the keys of chunks."""
        if splits > 1 and splits not in self._chunk_scratches:
            spec = self.spec
            self._chunk_scratches[splits] = ChunkScratch(
                SPLIT_TILES, spec.head_count, spec.head_size, splits, self.device
            )


def _cosines(rope: RopeSpec | None, positions: int, device: torch.device) -> torch.Tensor | None:
    """`[positions, rotary size]`: cosines, then sines."""
    if rope is None:
        return None
    frequencies = torch.tensor(rope.inverse_frequencies, dtype=torch.float32)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies[None, :]
    return (torch.cat([angles.cos(), angles.sin()], 1) * rope.attention_scale).to(device)
