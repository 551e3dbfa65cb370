"""What the content of a block is called: a digest of its tokens and of all that came before them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from trireme.llm.block_pool import BlockPool

_DIGEST_BYTES = 16


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
        numbers = array("i", tokens[first : count * self._block_size])
        pieces, size = numbers.tobytes(), numbers.itemsize * self._block_size
        before = self._keys[-1] if self._keys else self._salt
        for start in range(0, len(pieces), size):
            before = blake2b(before + pieces[start : start + size]).digest()[:_DIGEST_BYTES]
            self._keys.append(before)
        return self._keys[:count]


def find_prefix(pool: BlockPool, keys: Sequence[bytes]) -> list[int]:
    """The blocks that hold the longest known beginning; nobody holds them yet for this."""
    found = []
    for key in keys:
        block = pool.find(key)
        if block is None:
            break
        found.append(block)
    return found
