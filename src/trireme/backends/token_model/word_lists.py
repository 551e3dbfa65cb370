"""Lists of words as tensors: the words' token ids in one row, and where each word ends in the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.llm.sampling_params import MAX_BAD_WORDS, SamplingError

Words = tuple[tuple[int, ...], ...]
MAX_WORDS = MAX_BAD_WORDS
"""Every token that is written is compared with all of them."""
MAX_IDS = 65536
"""Of all words together, with what they are padded with."""


def decode_words(name: str, pair: npt.NDArray[Any]) -> Words:
    """The words of one request: `pair` has two rows, ids padded with 0 and ends padded with -1."""
    if pair.ndim != 2 or pair.shape[0] != 2:
        raise SamplingError(f"'{name}' must have two rows, the ids and the ends of its words, found {list(pair.shape)}")
    count, size = int(np.count_nonzero(pair[1] >= 0)), pair.shape[1]
    if count > MAX_WORDS or size > MAX_IDS:
        raise SamplingError(f"'{name}' has {count} words in {size} ids; it may have {MAX_WORDS} in {MAX_IDS}")
    ids, ends = pair.tolist()
    words, start = [], 0
    for end in ends:
        if end < 0:
            break
        if not start <= end <= len(ids):
            raise SamplingError(f"'{name}' has the end {end} behind {start}, with {len(ids)} ids")
        if end > start:
            words.append(tuple(int(token) for token in ids[start:end]))
        start = end
    return tuple(words)


def ends_with_any(tokens: list[int], words: Words) -> bool:
    """Whether the last tokens are one of the words."""
    return any(len(tokens) >= len(word) and tuple(tokens[-len(word) :]) == word for word in words)
