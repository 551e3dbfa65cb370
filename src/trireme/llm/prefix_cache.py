"""What the content of a block is called: a digest of its tokens and of all that came before them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from trireme.llm.block_pool import BlockPool

_DIGEST_BYTES = 16
_SPAN = 16
"""Blocks whose keys are kept together for the next prompt that begins alike."""


class BlockKeys:
    """The keys of one sequence's full blocks, made as far as they are asked for."""

    __slots__ = ("_block_size", "_keys", "_salt")

    def __init__(self, block_size: int, salt: bytes = b"") -> None:
        self._block_size = block_size
        self._salt = salt
        """What else decides about the content: an adapter's name, a tenant's."""
        self._keys: list[bytes] = []

    def copy(self) -> BlockKeys:
        """Keys of another sequence with the same beginning, as far as they are made."""
        made = BlockKeys(self._block_size, self._salt)
        made._keys = self._keys.copy()
        return made

    def first(self, count: int) -> BlockKeys:
        """Keys of another sequence that has the same tokens in so many blocks."""
        made = BlockKeys(self._block_size, self._salt)
        made._keys = self._keys[:count]
        return made

    def salted(self, extra: bytes) -> BlockKeys:
        """Keys of the same tokens whose blocks hold something else."""
        return BlockKeys(self._block_size, self._salt + extra)

    def up_to(self, tokens: Sequence[int], count: int) -> list[bytes]:
        """The keys of the first `count` blocks; `tokens` holds at least those blocks, and never changes within them."""
        first = len(self._keys) * self._block_size
        numbers = array("I", tokens[first : count * self._block_size])
        pieces, size = numbers.tobytes(), numbers.itemsize * self._block_size
        before = self._keys[-1] if self._keys else self._salt
        for start in range(0, len(pieces), size * _SPAN):
            span = pieces[start : start + size * _SPAN]
            made = (_keys_of_span if len(span) == size * _SPAN else _keys_of)(before, span, size)
            self._keys += made
            before = made[-1]
        return self._keys[:count]


def _keys_of(before: bytes, pieces: bytes, size: int) -> list[bytes]:
    """Of blocks with so many bytes of tokens each, behind one that is called `before`."""
    made = []
    for start in range(0, len(pieces), size):
        before = blake2b(before + pieces[start : start + size]).digest()[:_DIGEST_BYTES]
        made.append(before)
    return made


_keys_of_span = lru_cache(maxsize=1024)(_keys_of)
"""Where many prompts have one beginning, to look it up takes a tenth of the time; 2 MB at most with blocks of 16."""


def find_prefix(pool: BlockPool, keys: Sequence[bytes]) -> list[int]:
    """The blocks that hold the longest known beginning; nobody holds them yet for this."""
    found = []
    for key in keys:
        block = pool.find(key)
        if block is None:
            break
        found.append(block)
    return found
