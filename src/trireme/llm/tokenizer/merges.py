"""Byte-pair encoding of one word: the pair that was learned first is joined first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from trireme.llm.tokenizer.byte_characters import BYTE_TO_CHAR

MAX_REMEMBERED = 50_000
_MAX_REMEMBERED_SIZE = 64
"""Longer words hardly come again."""


class BytePairs:
    """Encodes words; remembers what it has encoded, up to a number of words."""

    def __init__(self, vocab: Mapping[str, int], ranks: Mapping[tuple[str, str], int], ignores_merges: bool) -> None:
        self._vocab = vocab
        self._ranks = ranks
        self._ignores_merges = ignores_merges
        self._remembered: dict[str, tuple[int, ...]] = {}

    def encode(self, word: str) -> tuple[int, ...]:
        """The tokens of a word."""
        found = self._remembered.get(word)
        if found is None:
            found = self._encode("".join([BYTE_TO_CHAR[byte] for byte in word.encode("utf-8", "replace")]))
            if len(word) <= _MAX_REMEMBERED_SIZE:
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[word] = found
        return found

    def _encode(self, word: str) -> tuple[int, ...]:
        whole = self._vocab.get(word)
        if whole is not None and (self._ignores_merges or len(word) == 1):
            return (whole,)
        return tuple(self._vocab[piece] for piece in self._joined(word))

    def _joined(self, word: str) -> list[str]:
        """A linked list of pieces, and a heap of pairs that may be joined: long words cost n log n."""
        pieces = list(word)
        following = list(range(1, len(pieces) + 1))
        previous = list(range(-1, len(pieces) - 1))
        heap = [
            (rank, at)
            for at in range(len(pieces) - 1)
            if (rank := self._ranks.get((pieces[at], pieces[at + 1]))) is not None
        ]
        heapq.heapify(heap)
        while heap:
            rank, at = heapq.heappop(heap)
            right = following[at]
            if right >= len(pieces) or self._ranks.get((pieces[at], pieces[right])) != rank or not pieces[at]:
                continue
            pieces[at] += pieces[right]
            pieces[right] = ""
            after = following[at] = following[right]
            if after < len(pieces):
                previous[after] = at
                self._offer(heap, pieces, at, after)
            if previous[at] >= 0:
                self._offer(heap, pieces, previous[at], at)
        return [piece for piece in pieces if piece]

    def _offer(self, heap: list[tuple[int, int]], pieces: list[str], left: int, right: int) -> None:
        rank = self._ranks.get((pieces[left], pieces[right]))
        if rank is not None:
            heapq.heappush(heap, (rank, left))
