"""Rotary positions: cosines and sines of every position, and the rotation of queries and keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trireme.llm.executors.numpy.weights import Array
from trireme.llm.models.spec import RopeSpec


@dataclass(frozen=True, slots=True)
class Angles:
    """Of the tokens of a step: `[tokens, 1, rotary size / 2]` each."""

    cosines: Array
    sines: Array


class RotaryTable:
    """The angles of all positions. Those of sequences beyond the short length stand behind the others."""

    def __init__(self, spec: RopeSpec, max_positions: int) -> None:
        self.spec = spec
        frequencies = [spec.inverse_frequencies]
        self._long_start = 0
        if spec.long_inverse_frequencies:
            self._long_start = max_positions
            frequencies.append(spec.long_inverse_frequencies)
        places = np.arange(max_positions, dtype=np.float32)[:, None]
        angles = np.concatenate([places * np.array(numbers, np.float32) for numbers in frequencies])
        self._cosines = (np.cos(angles) * spec.attention_scale).astype(np.float32)
        self._sines = (np.sin(angles) * spec.attention_scale).astype(np.float32)

    def of(self, positions: npt.NDArray[np.intp], is_long: npt.NDArray[np.bool_]) -> Angles:
        """The angles of tokens, each at its position in a sequence that is long or not."""
        rows = positions + is_long * self._long_start if self._long_start else positions
        return Angles(self._cosines[rows][:, None], self._sines[rows][:, None])


def rotate(heads: Array, angles: Angles, spec: RopeSpec) -> None:
    """Turns `[tokens, heads, head size]` in place."""
    half = spec.rotary_size // 2
    if spec.is_interleaved:
        first, second = heads[..., 0 : 2 * half : 2], heads[..., 1 : 2 * half : 2]
    else:
        first, second = heads[..., :half], heads[..., half : 2 * half]
    turned = first * angles.cosines - second * angles.sines
    second *= angles.cosines
    second += first * angles.sines
    first[...] = turned
