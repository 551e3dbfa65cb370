"""Rotary positions: the angles of a step's tokens, and the rotation of queries and keys by them."""

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


class Rotation:
    """How a kind of layer rotates."""

    def __init__(self, spec: RopeSpec) -> None:
        self._spec = spec
        frequencies = [spec.inverse_frequencies, spec.long_inverse_frequencies or spec.inverse_frequencies]
        self._frequencies: Array = np.array(frequencies, np.float32)
        """For sequences that are not long, and for those that are."""

    def angles(self, positions: npt.NDArray[np.intp], is_long: npt.NDArray[np.bool_]) -> Angles:
        """The angles of tokens, each at its position in a sequence that is long or not."""
        angles = positions.astype(np.float32)[:, None, None] * self._frequencies[is_long.astype(np.intp)][:, None]
        scale = np.float32(self._spec.attention_scale)
        return Angles(np.cos(angles) * scale, np.sin(angles) * scale)

    def rotate(self, heads: Array, angles: Angles) -> None:
        """Turns `[tokens, heads, head size]` in place."""
        half = self._spec.rotary_size // 2
        if self._spec.is_interleaved:
            first, second = heads[..., 0 : 2 * half : 2], heads[..., 1 : 2 * half : 2]
        else:
            first, second = heads[..., :half], heads[..., half : 2 * half]
        turned = first * angles.cosines - second * angles.sines
        second *= angles.cosines
        second += first * angles.sines
        first[...] = turned
