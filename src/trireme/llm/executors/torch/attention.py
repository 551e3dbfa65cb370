"""Attention of a step's tokens over the cache: single tokens of many sequences at once, chunks one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from trireme.llm.executors.numpy.attention import alibi_biases
from trireme.llm.executors.torch.layout import ChunkRows, DecodeRows, Layout, Tile
from trireme.llm.models.spec import DecoderSpec


class KeyValueSource(Protocol):
    """A cache in blocks."""

    def read(self, layer: int, blocks: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of blocks, as many for each row: `[rows, positions, key/value heads, head size]` each."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How queries and keys become the weights of values."""

    kv_head_count: int
    group_size: int
    """How many query heads share one key/value head."""
    scale: float
    """What scores are multiplied with."""
    softcap: float = 0.0
    biases: torch.Tensor | None = None
    """What is added to scores by the key's position, `[heads, positions]` (alibi)."""
    sinks: torch.Tensor | None = None
    """A score for each head that takes its share and brings no value, `[heads]`."""

    @property
    def is_fused(self) -> bool:
        """Whether PyTorch's own attention computes it."""
        return not self.softcap and self.biases is None and self.sinks is None

    @property
    def head_count(self) -> int:
        return self.kv_head_count * self.group_size


def scoring_of(spec: DecoderSpec, device: torch.device) -> Scoring:
    """What all layers of a model have in common."""
    biases = torch.from_numpy(alibi_biases(spec)).to(device) if spec.has_alibi else None
    return Scoring(spec.kv_head_count, spec.group_size, spec.score_scale, spec.attention_softcap, biases)


class Attention:
    """Scores, softmax and sums over the cache."""

    def __init__(self, scoring: Scoring, cache: KeyValueSource) -> None:
        self._scoring = scoring
        self._cache = cache

    def __call__(self, layer: int, queries: torch.Tensor, layout: Layout) -> torch.Tensor:
        """`[tokens, heads, head size]` to `[tokens, heads * size of a value]`."""
        count = queries.shape[0]
        if len(layout.decode) == 1 and not layout.chunks:
            return self._decode(layer, queries, layout.decode[0]).reshape(count, -1)
        parts = [self._decode(layer, queries[rows.begin : rows.end], rows) for rows in layout.decode]
        for chunk in layout.chunks:
            parts += self._chunk(layer, queries, chunk)
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        return joined.reshape(count, -1)

    def _decode(self, layer: int, queries: torch.Tensor, rows: DecodeRows) -> torch.Tensor:
        """Heads that share keys stand in the place of neighbouring queries, so that keys are read once for all."""
        scoring, count = self._scoring, queries.shape[0]
        keys, values = self._cache.read(layer, rows.blocks, count)
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        grouped = queries.reshape(count, scoring.kv_head_count, scoring.group_size, -1)
        if scoring.is_fused:
            found = functional.scaled_dot_product_attention(
                grouped, keys, values, attn_mask=rows.mask, scale=scoring.scale
            )
        else:
            bias = None
            if scoring.biases is not None:
                by_group = scoring.biases.view(scoring.kv_head_count, scoring.group_size, -1)
                bias = by_group[:, :, rows.key_positions.clamp(max=by_group.shape[2] - 1)].permute(2, 0, 1, 3)
            sinks = None
            if scoring.sinks is not None:
                sinks = scoring.sinks.view(1, scoring.kv_head_count, scoring.group_size, 1)
            found = self._weights(grouped, keys, rows.mask, bias, sinks).to(values.dtype) @ values
        return found.reshape(count, scoring.head_count, -1)

    def _chunk(self, layer: int, queries: torch.Tensor, chunk: ChunkRows) -> list[torch.Tensor]:
        keys, values = self._cache.read(layer, chunk.blocks, 1)
        keys, values = keys[0].transpose(0, 1), values[0].transpose(0, 1)
        found = []
        for tile in chunk.tiles:
            seen = slice(tile.first_key, tile.last_key)
            rows = queries[tile.begin : tile.end]
            found.append(self._tile(rows, keys[:, seen], values[:, seen], tile, chunk.first_position))
        return found

    def _tile(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tile: Tile, first_position: int
    ) -> torch.Tensor:
        """`[queries, heads, head size]` over `[key/value heads, keys, head size]`."""
        scoring, count = self._scoring, queries.shape[0]
        heads = (scoring.kv_head_count, scoring.group_size)
        grouped = queries.reshape(count, *heads, -1).permute(1, 2, 0, 3)
        if scoring.is_fused:
            found = functional.scaled_dot_product_attention(
                grouped,
                keys.unsqueeze(1).expand(*heads, *keys.shape[1:]),
                values.unsqueeze(1).expand(*heads, *values.shape[1:]),
                attn_mask=tile.mask,
                is_causal=tile.mask is None,
                scale=scoring.scale,
            )
        else:
            bias = None
            if scoring.biases is not None:
                first = first_position + tile.first_key
                bias = scoring.biases[:, first : first + keys.shape[1]].view(*heads, 1, -1)
            sinks = None if scoring.sinks is None else scoring.sinks.view(*heads, 1, 1)
            weights = self._weights(grouped, keys.unsqueeze(1), tile.mask, bias, sinks).to(values.dtype)
            found = weights @ values.unsqueeze(1)
        return found.permute(2, 0, 1, 3).reshape(count, scoring.head_count, -1)

    def _weights(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor | None,
        bias: torch.Tensor | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """What each key counts for each query, in float32."""
        scores = (queries @ keys.transpose(-1, -2)).float().mul_(self._scoring.scale)
        cap = self._scoring.softcap
        if cap:
            scores = scores.div_(cap).tanh_().mul_(cap)
        if bias is not None:
            scores += bias
        if mask is not None:
            scores += mask
        if sinks is None:
            return scores.softmax(-1)
        sunk = sinks.float().expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sunk], -1).softmax(-1)[..., :-1]
