"""How the beams of one search share the blocks of what they have in common."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from trireme.llm.block_pool import BlockPool
from trireme.llm.request import Sequence

BlockCopy = tuple[int, int]
"""The block to copy, and the one that gets its content."""


@dataclass(frozen=True, slots=True)
class Move:
    """A beam that goes on from what another has written, or from its own, with a token more."""

    beam: Sequence
    parent: Sequence
    token: int


def together(sequence: Sequence) -> Items[Sequence]:
    """Those that run and wait with a sequence, the one that leads first: its beams, or itself."""
    return sequence.peers or (sequence,)


def go_on_from(pool: BlockPool, move: Move, block_size: int) -> list[BlockCopy]:
    """Gives a beam the parent's tokens and blocks, of which all must be computed; the parent is left as it is.

    Full blocks are held by both. The one that is written next is copied, or where there is none to copy it to, its
    tokens are computed again.
    """
    beam, parent, size = move.beam, move.parent, len(move.parent.tokens)
    _take_over(pool, beam, parent, size // block_size, block_size)
    beam.tokens = [*parent.tokens, move.token]
    copied = pool.allocate(1) if size % block_size else None
    if copied is None:
        return []
    beam.blocks += copied
    beam.computed = size
    return [(parent.blocks[size // block_size], copied[0])]


def share_beginning(pool: BlockPool, leader: Sequence, beam: Sequence, block_size: int) -> None:
    """Gives a beam the leader's blocks as far as both have written the same; it computes the rest itself."""
    size = min(len(leader.tokens), len(beam.tokens)) - 1
    common = next((place for place in range(size) if leader.tokens[place] != beam.tokens[place]), size)
    _take_over(pool, beam, leader, common // block_size, block_size)


def _take_over(pool: BlockPool, beam: Sequence, parent: Sequence, count: int, block_size: int) -> None:
    shared = parent.blocks[:count]
    pool.hold(shared)
    pool.release(beam.blocks)
    beam.blocks = shared
    beam.computed = count * block_size
    beam.keys = parent.keys.first(count)
    beam.remembered = min(parent.remembered, count)
    beam.history = None
    beam.is_long = parent.is_long
    beam.is_suspended = False
    beam.admissions += 1  # what is under way of its old tokens is of no use
