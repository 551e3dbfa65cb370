"""The key/value cache in blocks, and attention of a step's tokens over it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trireme.llm.executors.numpy.weights import Array
from trireme.llm.models.spec import DecoderSpec

_TILE = 128
"""Queries whose scores are computed at once: it bounds what a long prompt takes."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The tokens of one sequence in a step."""

    begin: int
    end: int
    """Where they are among the step's tokens."""
    start: int
    """The position of the first."""
    blocks: npt.NDArray[np.intp]


class PagedCache:
    """Keys and values of all layers: `[layers, blocks, block size, key/value heads, head size]` each."""

    def __init__(self, spec: DecoderSpec, block_count: int, block_size: int) -> None:
        shape = (spec.layer_count, block_count, block_size, spec.kv_head_count, spec.head_size)
        self.block_size = block_size
        self.keys: Array = np.zeros(shape, np.float32)
        self.values: Array = np.zeros(shape, np.float32)
        flat = (spec.layer_count, block_count * block_size, spec.kv_head_count, spec.head_size)
        self._flat_keys = self.keys.reshape(flat)
        self._flat_values = self.values.reshape(flat)

    def slots(self, rows: Rows) -> npt.NDArray[np.intp]:
        """Where the tokens' keys and values go."""
        positions = np.arange(rows.start, rows.start + rows.end - rows.begin)
        return rows.blocks[positions // self.block_size] * self.block_size + positions % self.block_size

    def write(self, layer: int, slots: npt.NDArray[np.intp], keys: Array, values: Array) -> None:
        self._flat_keys[layer][slots] = keys
        self._flat_values[layer][slots] = values

    def copy(self, sources: npt.NDArray[np.intp], targets: npt.NDArray[np.intp]) -> None:
        """Whole blocks, in all layers."""
        self.keys[:, targets] = self.keys[:, sources]
        self.values[:, targets] = self.values[:, sources]

    def read(self, layer: int, blocks: npt.NDArray[np.intp], begin: int, end: int) -> tuple[Array, Array]:
        """Keys and values of the positions from `begin` to `end`: `[positions, key/value heads, head size]`."""
        first, last = begin // self.block_size, -(-end // self.block_size)
        taken, skipped = blocks[first:last], first * self.block_size
        shape = (-1, *self.keys.shape[3:])
        keys = self.keys[layer].take(taken, axis=0).reshape(shape)
        values = self.values[layer].take(taken, axis=0).reshape(shape)
        return keys[begin - skipped : end - skipped], values[begin - skipped : end - skipped]


class Attention:
    """Scores, softmax and sums over the cache, sequence by sequence."""

    def __init__(self, spec: DecoderSpec, cache: PagedCache) -> None:
        self._spec = spec
        self._cache = cache
        self._biases = alibi_biases(spec) if spec.has_alibi else None

    def __call__(self, layer: int, queries: Array, all_rows: tuple[Rows, ...]) -> Array:
        """`[tokens, heads, head size]` to `[tokens, heads * head size]`; the queries are scaled in place."""
        queries *= np.float32(self._spec.score_scale)
        result: Array = np.empty(queries.shape, np.float32)
        window = self._spec.window_of(layer)
        for rows in all_rows:
            first = max(0, rows.start - window + 1) if window else 0
            end = rows.start + rows.end - rows.begin
            keys, values = self._cache.read(layer, rows.blocks, first, end)
            for begin in range(rows.begin, rows.end, _TILE):
                stop = min(begin + _TILE, rows.end)
                start = rows.start + begin - rows.begin
                count = start + stop - begin - first
                result[begin:stop] = self._attend(
                    queries[begin:stop], keys[:count], values[:count], start, first, window
                )
        return result.reshape(len(result), -1)

    def _attend(self, queries: Array, keys: Array, values: Array, start: int, first: int, window: int) -> Array:
        """Queries from position `start` on over keys from position `first` on, up to the last query's."""
        spec, count = self._spec, len(queries)
        groups = (spec.kv_head_count, spec.group_size, count)
        by_group = queries.reshape(count, spec.kv_head_count, spec.group_size, spec.head_size).transpose(1, 2, 0, 3)
        scores = by_group.reshape(spec.kv_head_count, -1, spec.head_size) @ keys.transpose(1, 2, 0)
        if spec.attention_softcap:
            cap = np.float32(spec.attention_softcap)
            scores = np.tanh(scores / cap) * cap
        if self._biases is not None:
            scores.reshape(*groups, -1)[...] += self._biases[:, first : first + len(keys)].reshape(*groups[:2], 1, -1)
        if count > 1:
            scores.reshape(*groups, -1)[...] += causal_mask(start, count, first, len(keys), window)
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        sums: Array = scores @ values.transpose(1, 0, 2) / scores.sum(-1, keepdims=True)
        result: Array = sums.reshape(*groups, -1).transpose(2, 0, 1, 3).reshape(queries.shape)
        return result


def causal_mask(start: int, count: int, first: int, key_count: int, window: int) -> Array:
    """0 where a query sees a key, minus infinity where it does not: `[queries, keys]`."""
    distances = np.arange(start, start + count)[:, None] - np.arange(first, first + key_count)
    is_hidden = distances < 0
    if window:
        is_hidden |= distances >= window
    return np.where(is_hidden, np.float32(-np.inf), np.float32(0))


def alibi_biases(spec: DecoderSpec) -> Array:
    """What each head adds to the scores of the key at each position, in bfloat16's precision: `[heads, positions]`."""
    slopes = round_to_bfloat16(np.array(alibi_slopes(spec.head_count), np.float32))
    products: Array = slopes[:, None] * np.arange(spec.max_positions).astype(np.float32)
    return round_to_bfloat16(products) * np.float32(spec.alibi_bias_dtype_scale)


def alibi_slopes(head_count: int) -> list[float]:
    """A falling series for a power of two of heads; further heads get those between of the next power."""
    power = 2 ** math.floor(math.log2(head_count))
    slopes = [2 ** (-8 * number / power) for number in range(1, power + 1)]
    between = [2 ** (-4 * number / power) for number in range(1, 2 * power, 2)]
    return slopes + between[: head_count - power]


def round_to_bfloat16(values: Array) -> Array:
    """The nearest numbers with eight bits of precision, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)
