"""Sets of tokens as bits, eight to a byte, the lowest first: small enough to be copied and sent for every token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt

TokenBits = npt.NDArray[np.uint8]


def fitted(bits: TokenBits, vocab_size: int) -> TokenBits:
    """For so many tokens; what lies behind them is left out, and tokens that `bits` does not have are not in."""
    size = -(-vocab_size // 8)
    if bits.size >= size and not vocab_size % 8:
        return bits[:size]
    found = np.zeros(size, np.uint8)
    count = min(size, bits.size)
    found[:count] = bits[:count]
    if vocab_size % 8:
        found[-1] &= (1 << vocab_size % 8) - 1
    return found


def every_token(vocab_size: int) -> TokenBits:
    """The set of all."""
    return fitted(np.full(-(-vocab_size // 8), 255, np.uint8), vocab_size)


def without(bits: TokenBits, tokens: Iterable[int]) -> TokenBits:
    """A copy without some tokens; those behind the vocabulary are no matter."""
    found = bits.copy()
    for token in tokens:
        if token >> 3 < found.size:
            found[token >> 3] &= 255 ^ (1 << (token & 7))
    return found


def with_token(bits: TokenBits, token: int) -> TokenBits:
    """A copy with one more."""
    found = bits.copy()
    found[token >> 3] |= 1 << (token & 7)
    return found


def as_mask(bits: TokenBits, vocab_size: int) -> npt.NDArray[np.bool_]:
    """A boolean for each token."""
    return cast("npt.NDArray[np.bool_]", np.unpackbits(bits, count=vocab_size, bitorder="little").view(np.bool_))
