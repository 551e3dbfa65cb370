"""The blocks of the key/value cache: which are free, who shares them, and which still hold a prefix that is known."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """Owns every block of the cache by its number.

    A block that nobody holds is free. A free one keeps what was written into it until it is handed out again, so that a
    sequence with the same prefix can take it back; the longest unused is handed out first.
    """

    def __init__(self, block_count: int) -> None:
        self._holders = [0] * block_count
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(block_count))
        self._by_key: dict[bytes, int] = {}
        self._keys: list[bytes | None] = [None] * block_count

    @property
    def block_count(self) -> int:
        return len(self._holders)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """Hands out blocks with unknown content, or none at all where there are not as many."""
        if count > len(self._free):
            return None
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._holders[block] = 1
            taken.append(block)
        return taken

    def find(self, key: bytes) -> int | None:
        """The block with that content."""
        return self._by_key.get(key)

    def hold(self, blocks: Sequence[int]) -> None:
        """Adds a holder to blocks that somebody holds, or that `find` named."""
        holders, free = self._holders, self._free
        for block in blocks:
            if not holders[block]:
                del free[block]
            holders[block] += 1

    def count_free(self, blocks: Sequence[int]) -> int:
        """How many of these nobody holds."""
        holders = self._holders
        return len([block for block in blocks if not holders[block]])

    def remember(self, block: int, key: bytes) -> None:
        """Says what a block holds, from now until it is handed out again. Of two with one content the first counts."""
        if self._keys[block] is None and key not in self._by_key:
            self._by_key[key] = block
            self._keys[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Takes a holder off each. They come in the order of the sequence; its end is handed out before its start."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None
                if self._keys[block] is None:  # nothing worth keeping: the next to be handed out
                    self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        if key is not None:
            del self._by_key[key]
            self._keys[block] = None
