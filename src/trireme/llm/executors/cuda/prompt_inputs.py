"""Inputs of steps with prompts: rows that tokens are chosen from, and of recorded ones all there is, in one array."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence as Items

import numpy as np

from trireme.llm.executors.cuda.packing import Ints, cut_into_tiles, fill_rows
from trireme.llm.executors.cuda.prompt_sizes import PromptSizes
from trireme.llm.step_plan import Chunk


def sampled_ends(chunks: Items[Chunk]) -> tuple[list[int], list[int]]:
    """The rows of chunks, one after another, that tokens are chosen from, and their sequences' slots."""
    ends: list[int] = []
    slots: list[int] = []
    first = 0
    for chunk in chunks:
        sampled = chunk.sampled
        ends += [first + position - chunk.start - 1 for position in sampled]
        slots += [chunk.sequence.slot] * len(sampled)
        first += chunk.count
    return ends, slots


def prompt_inputs(chunks: Items[Chunk], sizes: PromptSizes, spare_slot: int) -> Ints:
    """Rows of tokens, tiles of chunks, rows that tokens are chosen from and their slots; the rest is nobody's."""
    filled = _nobodys(sizes, spare_slot).copy()
    tiles_at = 4 * sizes.tokens
    ends_at = tiles_at + 4 * sizes.tiles
    slots_at = ends_at + sizes.samples
    fill_rows(filled[:tiles_at].reshape(-1, 4), chunks)
    tiles = cut_into_tiles(chunks, 0)
    filled[tiles_at : tiles_at + 4 * len(tiles)] = list(itertools.chain(*tiles))
    ends, slots = sampled_ends(chunks)
    filled[ends_at : ends_at + len(ends)] = ends
    filled[slots_at : slots_at + len(slots)] = slots
    return filled


@functools.cache
def _nobodys(sizes: PromptSizes, spare_slot: int) -> Ints:
    """The inputs of a step without sequences."""
    rows = [spare_slot, 0, -1, 0] * sizes.tokens
    tiles = [spare_slot, 0, 0, 0] * sizes.tiles
    return np.array([*rows, *tiles, *[0] * sizes.samples, *[spare_slot] * sizes.samples], dtype=np.int32)
