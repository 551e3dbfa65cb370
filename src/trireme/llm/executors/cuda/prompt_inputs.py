"""Which rows of a step's chunks tokens are chosen from, packed as the device takes them."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np

from trireme.llm.executors.cuda.packing import Ints
from trireme.llm.executors.cuda.prompt_sizes import samples_for
from trireme.llm.step_plan import Chunk


def sampled_ends(chunks: Items[Chunk]) -> Ints:
    """`[2, count]`: the rows of chunks, one after another, that tokens are chosen from, and their sequences' slots."""
    ends, slots, first = [], [], 0
    for chunk in chunks:
        ends += [first + position - chunk.start - 1 for position in chunk.sampled]
        slots += [chunk.sequence.slot] * len(chunk.sampled)
        first += chunk.count
    return np.array([ends, slots], dtype=np.int32)


def filled_ends(ends: Ints, spare_slot: int) -> Ints:
    """The same, and as many rows behind them that no sequence has as a recorded step needs."""
    count = ends.shape[1]
    return np.concatenate([ends, no_ends(samples_for(count) - count, spare_slot)], 1)


def no_ends(count: int, spare_slot: int) -> Ints:
    """As many rows that no sequence has."""
    return np.array([[0] * count, [spare_slot] * count], dtype=np.int32)
