"""The key/value cache in blocks, and which of them each running sequence has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import Sequence

Integers = npt.NDArray[np.int64]


class Pages(Protocol):
    """How a cache is cut into blocks."""

    block_size: int
    padding_block: int
    """One that no sequence has: it fills up tables of sequences of different lengths."""

    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Whole blocks, in all layers; none is source and target."""

    def clear(self, blocks: torch.Tensor) -> None:
        """Whole blocks, in all layers."""


def begun_block(start: int, count: int, block_size: int) -> int | None:
    """Which block of a sequence its tokens from `start` on begin and do not fill.

    What others have left behind them is looked at and does not count; where it is no number, nothing counts any more.
    """
    end = start + count
    return end // block_size if end % block_size and end // block_size * block_size >= start else None


class PagedCache:
    """Keys and values of all layers, beside each other, so that a block of both is read at once.

    `[layers, blocks + 1, block size, 2 * key/value heads, head size]`, keys first. The block behind the last
    belongs to nobody: it is the padding. Numbers of eight bits are widened as they are read.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        block_count: int,
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
        kept_as: torch.dtype | None = None,
    ) -> None:
        """`dtype` is what the model computes in, `kept_as` what the blocks have; None: the same."""
        shape = (spec.layer_count, block_count + 1, block_size, 2 * spec.kv_head_count, spec.head_size)
        self.block_size = block_size
        self.padding_block = block_count
        self._dtype, self._small = dtype, kept_as if kept_as is not dtype else None
        self._blocks = zeros(shape, device, dtype if self._small is None else torch.uint8)
        self._by_slot = self._blocks.view(spec.layer_count, -1, 2 * spec.kv_head_count, spec.head_size)
        self._heads = spec.kv_head_count

    def write(self, layer: int, slots: torch.Tensor, keys_and_values: torch.Tensor) -> None:
        """Puts `[tokens, 2 * key/value heads, head size]` where the slots say."""
        if self._small is not None:
            most = torch.finfo(self._small).max
            keys_and_values = keys_and_values.clamp(-most, most).to(self._small).view(torch.uint8)
        self._by_slot[layer].index_copy_(0, slots, keys_and_values)

    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Whole blocks, in all layers."""
        self._blocks.index_copy_(1, targets, self._blocks.index_select(1, sources))

    def clear(self, blocks: torch.Tensor) -> None:
        """Whole blocks, in all layers."""
        self._blocks.index_fill_(1, blocks, 0)

    def read(self, layer: int, blocks: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of blocks, as many for each row: `[rows, positions, key/value heads, head size]` each."""
        found = self._blocks[layer].index_select(0, blocks)
        if self._small is not None:
            found = found.view(self._small).to(self._dtype)
        found = found.view(rows, -1, *found.shape[2:])
        return found[:, :, : self._heads], found[:, :, self._heads :]


class BlockTables:
    """By slot the blocks of its sequence, kept up step by step."""

    def __init__(self, slot_count: int, width: int) -> None:
        self._blocks: Integers = np.zeros((slot_count, width), np.int64)
        self._known = [0] * slot_count

    def forget(self, sequences: Iterable[Sequence]) -> None:
        """Sequences have got slots that others had before."""
        for sequence in sequences:
            self._known[sequence.slot] = 0

    def update(self, sequence: Sequence) -> None:
        """Takes over blocks that are new."""
        known, blocks = self._known[sequence.slot], sequence.blocks
        if known < len(blocks):
            self._blocks[sequence.slot, known : len(blocks)] = blocks[known:]
            self._known[sequence.slot] = len(blocks)

    def of(self, slot: int) -> Integers:
        """The row of a slot; what lies behind its sequence's blocks means nothing."""
        row: Integers = self._blocks[slot]
        return row

    def window(self, slots: Integers, first: Integers, width: int) -> Integers:
        """So many blocks of each slot, from the given one on."""
        columns = np.minimum(first[:, None] + np.arange(width), self._blocks.shape[1] - 1)
        found: Integers = self._blocks[slots[:, None], columns]
        return found


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """On a CPU of pages that the system gives out when they are first written; PyTorch's own would be at once."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros((*shape, dtype.itemsize), np.uint8)).view(dtype).squeeze(-1)
