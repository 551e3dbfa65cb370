"""The few sizes that steps are filled up to, so that a device sees the same shapes again and again."""

from __future__ import annotations

from dataclasses import dataclass


def buckets(largest: int, smallest: int = 1) -> tuple[int, ...]:
    """Doublings of the smallest, and the largest."""
    sizes = [largest]
    size = smallest
    while size < largest:
        sizes.insert(-1, size)
        size *= 2
    return tuple(sizes)


def fit(count: int, sizes: tuple[int, ...]) -> int:
    """The smallest that holds so many."""
    return next(size for size in sizes if size >= count)


@dataclass(frozen=True, slots=True)
class StepBuckets:
    """Of one executor."""

    rows: tuple[int, ...]
    """Sequences that get one token each."""
    tokens: tuple[int, ...]
    """Tokens of a chunk."""
    blocks: tuple[int, ...]
    """Blocks that a sequence looks at."""

    def decode_shapes(self) -> list[tuple[int, int]]:
        """Every number of rows with every number of blocks."""
        return [(rows, blocks) for rows in self.rows for blocks in self.blocks]

    def chunk_shapes(self, block_size: int) -> list[tuple[int, int]]:
        """Every number of tokens with every number of blocks that may hold them."""
        pairs = [(tokens, blocks) for tokens in self.tokens for blocks in self.blocks]
        least = {tokens: fit(self._fewest(tokens, block_size), self.blocks) for tokens in self.tokens}
        return [(tokens, blocks) for tokens, blocks in pairs if blocks >= least[tokens]]

    def _fewest(self, tokens: int, block_size: int) -> int:
        """Blocks of the smallest chunk that is filled up to so many tokens."""
        smaller = [size for size in self.tokens if size < tokens]
        return min(-(-(smaller[-1] + 1 if smaller else 2) // block_size), self.blocks[-1])
