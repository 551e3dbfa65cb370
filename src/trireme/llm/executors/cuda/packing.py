"""A step's inputs as integers: packed on the host, and sent to the device without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trireme.llm.kernels.chunk_size import CHUNK_ROWS
from trireme.llm.step_plan import Chunk

Ints = npt.NDArray[np.int32]

RING = 4
"""Steps whose inputs or outputs may be on their way at once, with some to spare."""


class _Memory(NamedTuple):
    """Where a step's inputs are on their way."""

    host: torch.Tensor
    numbers: Ints
    """The same memory."""
    device: torch.Tensor


class InputRing:
    """Pinned memory by turns, so that a step's inputs are not overwritten before they are on the device.

    What does not fit any more gets memory of its own, which is kept until its turn comes again.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self._where = device
        self._turns = [self._memory(size) for _ in range(RING)]
        self._extra: list[list[_Memory]] = [[] for _ in range(RING)]
        self._size = size
        self._turn = 0
        self._used = 0

    @property
    def turn(self) -> int:
        """Which of the turns it is."""
        return self._turn

    def begin_step(self) -> None:
        """What is sent from now on belongs to the next step."""
        self._turn = (self._turn + 1) % RING
        self._used = 0
        self._extra[self._turn].clear()

    def send(self, values: Ints, target: torch.Tensor | None = None) -> torch.Tensor:
        """On the current stream; to the device's own memory of this step, unless `target` says where to."""
        begin, end = self._used, self._used + values.size
        memory = self._turns[self._turn]
        if end <= self._size:
            self._used = -(-end // 4) * 4
        else:
            memory, begin, end = self._memory(values.size), 0, values.size
            self._extra[self._turn].append(memory)
        memory.numbers[begin:end] = values.reshape(-1)
        if target is None:
            target = memory.device[begin:end]
        return target.copy_(memory.host[begin:end], non_blocking=True)

    def _memory(self, size: int) -> _Memory:
        """Memory of the host, pinned where there is a device to read it, and as much of the device."""
        host = torch.empty(size, dtype=torch.int32, pin_memory=self._where.type == "cuda")
        return _Memory(host, host.numpy(), torch.empty(size, dtype=torch.int32, device=self._where))


def single_rows(chunks: Items[Chunk], count: int, spare_slot: int) -> Ints:
    """`[count, 4]`: slot, position, new block or -1, token or -1 where the device has it; rows to spare come last."""
    packed = np.empty((count, 4), dtype=np.int32)
    packed[:] = (spare_slot, 0, -1, 0)
    if chunks:
        packed[: len(chunks)] = [
            (chunk.sequence.slot, chunk.start, -1, -1 if chunk.is_pending else chunk.sequence.tokens[chunk.start])
            for chunk in chunks
        ]
    return packed


def chunk_rows(chunks: Items[Chunk]) -> Ints:
    """The same for chunks, a row for each token and none to spare."""
    packed = np.full((sum(chunk.count for chunk in chunks), 4), -1, dtype=np.int32)
    fill_rows(packed, chunks)
    return packed


def fill_rows(packed: Ints, chunks: Items[Chunk]) -> None:
    """Writes slots, positions and tokens of chunks, one after another, into rows without new blocks."""
    first = 0
    for chunk in chunks:
        rows = packed[first : first + chunk.count]
        rows[:, 0] = chunk.sequence.slot
        rows[:, 1] = np.arange(chunk.start, chunk.start + chunk.count)
        rows[:, 3] = -1 if chunk.is_pending else chunk.tokens
        first += chunk.count


def count_tiles(chunks: Items[Chunk]) -> int:
    """How many tiles chunks are cut into."""
    return sum(-(-chunk.count // CHUNK_ROWS) for chunk in chunks)


def cut_into_tiles(chunks: Items[Chunk], first: int) -> list[tuple[int, int, int, int]]:
    """Chunks cut as `chunk_attention` takes them, from row `first` on."""
    tiles = []
    for chunk in chunks:
        for offset in range(0, chunk.count, CHUNK_ROWS):
            size = min(CHUNK_ROWS, chunk.count - offset)
            tiles.append((chunk.sequence.slot, first + offset, size, chunk.start + offset))
        first += chunk.count
    return tiles


class KnownBlocks:
    """Which blocks of each slot the device's table has."""

    def __init__(self, slots: int, block_size: int, table_width: int) -> None:
        self._counts = np.zeros(slots, dtype=np.int64)
        self._block_size = block_size
        self._width = table_width

    def forget(self, slot: int) -> None:
        """Another sequence has the slot now."""
        self._counts[slot] = 0

    def missing(self, chunks: Items[Chunk], singles: Ints | None = None) -> list[tuple[int, list[int]]]:
        """By sequence: the first place in the table, and the blocks from there on.

        A block at the place of a single token's own position goes into that token's row instead.
        """
        found = []
        for row, chunk in enumerate(chunks):
            sequence = chunk.sequence
            have, want = int(self._counts[sequence.slot]), len(sequence.blocks)
            if have == want:
                continue
            self._counts[sequence.slot] = want
            if singles is not None and want == have + 1 and chunk.start // self._block_size == have:
                singles[row, 2] = sequence.blocks[-1]
                continue
            found.append((sequence.slot * self._width + have, sequence.blocks[have:]))
        return found


def send_blocks(missing: Items[tuple[int, list[int]]], table: torch.Tensor, ring: InputRing) -> None:
    """Writes blocks that `KnownBlocks` misses into the table: those of one sequence in one copy."""
    places = table.view(-1)
    if len(missing) == 1:
        ((first, blocks),) = missing
        ring.send(np.array(blocks, dtype=np.int32), places[first : first + len(blocks)])
    elif missing:
        numbers = [place for first, blocks in missing for place in range(first, first + len(blocks))]
        packed = np.array([numbers, [block for _, blocks in missing for block in blocks]], dtype=np.int32)
        where, what = ring.send(packed).view(2, -1)
        places.index_copy_(0, where.long(), what)
