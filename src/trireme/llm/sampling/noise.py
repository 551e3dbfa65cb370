"""The randomness of sampling: a function of the sequence's seed, the token's position and the token's id, nothing else.

So a request with a seed gets the same tokens whatever shares its batch, and every device draws the same numbers. In
integers of 64 bits that wrap around, with `>>` shifting in zeros:

    mix(x):  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9
             x = (x ^ x >> 27) * 0x94D049BB133111EB
             x ^ x >> 31
    row   =  mix(mix(seed + STEP) + (position + 1) * STEP)            STEP = 0x9E3779B97F4A7C15
    bits  =  mix(row + (token + 1) * STEP)
    u     =  ((bits >> 12) + 0.5) / 2**52                             between 0 and 1, neither of them
    noise = -log(-log(u))                                             in float64

The token with the largest sum of logit and noise is then a sample of the softmax of the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

STEP = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB
_MASK = 2**64 - 1

UInt64Array = npt.NDArray[np.uint64]


def row_key(seed: int, position: int) -> int:
    """What one row of logits draws its noise with."""
    return _mix((_mix((seed + STEP) & _MASK) + (position + 1) * STEP) & _MASK)


def row_keys(seeds: Sequence[int], positions: Sequence[int]) -> UInt64Array:
    """The same for each row of a batch."""
    step = np.uint64(STEP)
    keys = _mixed(np.array([seed & _MASK for seed in seeds], np.uint64) + step)
    return _mixed(keys + (np.asarray(positions, np.uint64) + np.uint64(1)) * step)


def uniform(key: int, tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """A number between 0 and 1 for each token id."""
    bits = _mixed(np.uint64(key) + (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP))
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gumbel(key: int, tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The noise of each token id."""
    return -np.log(-np.log(uniform(key, tokens)))


def _mixed(bits: UInt64Array) -> UInt64Array:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(FIRST_FACTOR)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(SECOND_FACTOR)
    return bits ^ (bits >> np.uint64(31))


def _mix(value: int) -> int:
    value = (value ^ value >> 30) * FIRST_FACTOR & _MASK
    value = (value ^ value >> 27) * SECOND_FACTOR & _MASK
    return value ^ value >> 31
