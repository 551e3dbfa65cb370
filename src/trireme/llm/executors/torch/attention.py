"""Attention of a step's tokens over the cache: single tokens of many sequences at once, chunks one by one."""

from __future__ import annotations

import torch
from torch.nn import functional

from trireme.llm.executors.numpy.attention import alibi_biases
from trireme.llm.executors.torch.cache import PagedCache
from trireme.llm.executors.torch.layout import ChunkRows, DecodeRows, Layout, Tile
from trireme.llm.models.spec import DecoderSpec


class Attention:
    """Scores, softmax and sums over the cache."""

    def __init__(self, spec: DecoderSpec, cache: PagedCache, device: torch.device) -> None:
        self._spec = spec
        self._cache = cache
        self._biases = torch.from_numpy(alibi_biases(spec)).to(device) if spec.has_alibi else None
        """`[heads, positions]`."""

    @staticmethod
    def is_fused(spec: DecoderSpec) -> bool:
        """Whether PyTorch's own attention covers the model."""
        return not spec.has_alibi and not spec.attention_softcap

    def __call__(self, layer: int, queries: torch.Tensor, layout: Layout) -> torch.Tensor:
        """`[tokens, heads, head size]` to `[tokens, heads * head size]`."""
        spec = self._spec
        count = queries.shape[0]
        if len(layout.decode) == 1 and not layout.chunks:
            return self._decode(layer, queries, layout.decode[0]).reshape(count, -1)
        result = torch.empty((count, spec.head_count, spec.head_size), dtype=queries.dtype, device=queries.device)
        for rows in layout.decode:
            result[rows.begin : rows.end] = self._decode(layer, queries[rows.begin : rows.end], rows)
        for chunk in layout.chunks:
            self._chunk(layer, queries, chunk, result)
        return result.view(count, -1)

    def _decode(self, layer: int, queries: torch.Tensor, rows: DecodeRows) -> torch.Tensor:
        """Heads that share keys stand in the place of neighbouring queries, so that keys are read once for all."""
        spec, count = self._spec, queries.shape[0]
        keys, values = self._cache.read(layer, rows.blocks, count)
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        grouped = queries.reshape(count, spec.kv_head_count, spec.group_size, spec.head_size)
        if self.is_fused(spec):
            found = functional.scaled_dot_product_attention(
                grouped, keys, values, attn_mask=rows.mask, scale=spec.score_scale
            )
        else:
            bias = None
            if self._biases is not None:
                by_group = self._biases.view(spec.kv_head_count, spec.group_size, -1)
                bias = by_group[:, :, rows.key_positions.clamp(max=by_group.shape[2] - 1)].permute(2, 0, 1, 3)
            found = self._scores(grouped, keys, rows.mask, bias).to(values.dtype) @ values
        return found.reshape(count, spec.head_count, spec.head_size)

    def _chunk(self, layer: int, queries: torch.Tensor, chunk: ChunkRows, result: torch.Tensor) -> None:
        keys, values = self._cache.read(layer, chunk.blocks, 1)
        keys, values = keys[0].transpose(0, 1), values[0].transpose(0, 1)
        for tile in chunk.tiles:
            seen = slice(tile.first_key, tile.last_key)
            result[tile.begin : tile.end] = self._tile(
                queries[tile.begin : tile.end], keys[:, seen], values[:, seen], tile, chunk.first_position
            )

    def _tile(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tile: Tile, first_position: int
    ) -> torch.Tensor:
        """`[queries, heads, head size]` over `[key/value heads, keys, head size]`."""
        spec, count = self._spec, queries.shape[0]
        grouped = queries.reshape(count, spec.kv_head_count, spec.group_size, spec.head_size).permute(1, 2, 0, 3)
        if self.is_fused(spec):
            shape = (spec.kv_head_count, spec.group_size, *keys.shape[1:])
            found = functional.scaled_dot_product_attention(
                grouped,
                keys.unsqueeze(1).expand(shape),
                values.unsqueeze(1).expand(shape),
                attn_mask=tile.mask,
                is_causal=tile.mask is None,
                scale=spec.score_scale,
            )
        else:
            bias = None
            if self._biases is not None:
                first = first_position + tile.first_key
                seen = self._biases[:, first : first + keys.shape[1]]
                bias = seen.view(spec.kv_head_count, spec.group_size, 1, -1)
            weights = self._scores(grouped, keys.unsqueeze(1), tile.mask, bias).to(values.dtype)
            found = weights @ values.unsqueeze(1)
        return found.permute(2, 0, 1, 3).reshape(count, spec.head_count, spec.head_size)

    def _scores(
        self, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """What each key counts for each query, in float32."""
        scores = (queries @ keys.transpose(-1, -2)).float().mul_(self._spec.score_scale)
        cap = self._spec.attention_softcap
        if cap:
            scores = scores.div_(cap).tanh_().mul_(cap)
        if bias is not None:
            scores += bias
        if mask is not None:
            scores += mask
        return scores.softmax(-1)
