"""Where a step's tokens find their keys: computed once for a step, and used by all its layers."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch

from trireme.llm.executors.torch.cache import BlockTables, Integers, Pages, begun_block

_TILE = 256
"""Queries of a chunk whose scores are computed at once: it bounds what a long prompt takes."""
_SMALL = 8
"""Rows of up to so many blocks are attended together, however they differ."""


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens of one sequence in a step."""

    begin: int
    end: int
    """Where they are among the step's tokens."""
    start: int
    """The position of the first."""
    slot: int


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """Neighbouring rows of one token each, whose sequences are about as long."""

    begin: int
    end: int
    blocks: torch.Tensor
    """As many for each row, one row after another."""
    mask: torch.Tensor
    """0 where a row sees a key, minus infinity where it does not: `[rows, 1, 1, keys]`."""
    key_positions: torch.Tensor
    """`[rows, keys]`."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Some queries of a chunk and the keys they see."""

    begin: int
    end: int
    """Rows of the step."""
    first_key: int
    last_key: int
    """Among the chunk's keys; the last one is not included."""
    mask: torch.Tensor | None
    """`[queries, keys]`; None: each query sees the keys up to its own."""


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The tokens of one sequence, and all blocks that they look at."""

    blocks: torch.Tensor
    first_position: int
    """Of the first key in those blocks."""
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Of a step, for layers with one and the same window."""

    decode: tuple[DecodeRows, ...]
    chunks: tuple[ChunkRows, ...]


class LayoutBuilder:
    """Builds layouts for one device and type."""

    def __init__(
        self, pages: Pages, tables: BlockTables, device: torch.device, dtype: torch.dtype, *, is_causal_known: bool
    ) -> None:
        """`is_causal_known`: whether attention can do without a mask where chunks begin with their sequences."""
        self._pages, self._tables, self._device, self._dtype = pages, tables, device, dtype
        self._is_causal_known = is_causal_known

    def clear_begun(self, spans: Items[Span]) -> None:
        """Makes the blocks ready that tokens begin and do not fill."""
        begun = []
        for span in spans:
            place = begun_block(span.start, span.end - span.begin, self._pages.block_size)
            if place is not None:
                begun.append(int(self._tables.of(span.slot)[place]))
        if begun:
            self._pages.clear(torch.tensor(begun, device=self._device))

    def build(self, singles: Items[Span], chunks: Items[Span], window: int) -> Layout:
        """Singles are sorted by their position; a window of 0 sees everything."""
        decode = []
        first = 0
        while first < len(singles):
            last = first + 1
            while last < len(singles) and self._share(singles[first], singles[last], window):
                last += 1
            decode.append(self._decode_rows(singles[first:last], window))
            first = last
        return Layout(tuple(decode), tuple(self._chunk_rows(chunk, window) for chunk in chunks))

    def _share(self, shortest: Span, other: Span, window: int) -> bool:
        """Whether it costs less to fill up the shorter one's keys than to compute the two apart."""
        size = self._pages.block_size
        lengths = [min(span.start + 1, window or span.start + 1) for span in (shortest, other)]
        return lengths[1] <= max(_SMALL * size, 2 * lengths[0])

    def _decode_rows(self, spans: Items[Span], window: int) -> DecodeRows:
        size = self._pages.block_size
        positions = np.array([span.start for span in spans], np.int64)
        slots = np.array([span.slot for span in spans], np.int64)
        first = np.maximum(positions - window + 1, 0) // size if window else np.zeros_like(positions)
        last = positions // size
        width = int((last - first).max()) + 1
        blocks = self._tables.window(slots, first, width)
        blocks[first[:, None] + np.arange(width) > last[:, None]] = self._pages.padding_block
        keys = (first * size)[:, None] + np.arange(width * size)
        mask = self._mask(positions[:, None] - keys, window)
        return DecodeRows(
            spans[0].begin,
            spans[-1].end,
            self._send(blocks.reshape(-1)),
            mask[:, None, None],
            self._send(keys),
        )

    def _chunk_rows(self, span: Span, window: int) -> ChunkRows:
        size, stop = self._pages.block_size, span.start + span.end - span.begin
        first = max(0, span.start - window + 1) // size if window else 0
        blocks = self._tables.of(span.slot)[first : -(-stop // size)]
        base = first * size
        if self._is_causal_known and not span.start and (not window or stop <= window):
            return ChunkRows(self._send(blocks), base, (Tile(span.begin, span.end, 0, stop, None),))
        tiles = []
        for begin in range(span.begin, span.end, _TILE):
            end = min(begin + _TILE, span.end)
            queries = np.arange(span.start + begin - span.begin, span.start + end - span.begin)
            lowest = max(0, int(queries[0]) - window + 1) if window else 0
            keys = np.arange(lowest, int(queries[-1]) + 1)
            mask = self._mask(queries[:, None] - keys, window)
            tiles.append(Tile(begin, end, lowest - base, int(queries[-1]) + 1 - base, mask))
        return ChunkRows(self._send(blocks), base, tuple(tiles))

    def _mask(self, distances: Integers, window: int) -> torch.Tensor:
        is_hidden = distances < 0
        if window:
            is_hidden |= distances >= window
        mask = torch.zeros(distances.shape, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(torch.from_numpy(is_hidden).to(self._device), -torch.inf)

    def _send(self, values: Integers) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)
