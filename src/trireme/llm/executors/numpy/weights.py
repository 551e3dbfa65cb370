"""The canonical tensors as float32 arrays, gathered by layer, in the order in which a step multiplies with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trireme.llm.executors import weights
from trireme.llm.models.checkpoint import StoredWeight, Weight, to_float32
from trireme.llm.models.spec import DecoderSpec

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix `[in, out]` and its bias."""

    matrix: Array
    bias: Array | None = None

    def __call__(self, rows: Array) -> Array:
        result: Array = rows @ self.matrix
        if self.bias is not None:
            result += self.bias
        return result


@dataclass(frozen=True, slots=True)
class Norm:
    """Normalises the last axis."""

    kind: weights.NormKind
    eps: float
    weight: Array | None = None
    bias: Array | None = None

    def __call__(self, values: Array) -> Array:
        size = values.shape[-1]
        if self.kind == "layer":
            values = values - values.sum(-1, keepdims=True) / np.float32(size)
        squares = np.einsum("...i,...i->...", values, values)
        scale = 1.0 / np.sqrt(squares / np.float32(size) + np.float32(self.eps))
        result: Array = values * scale[..., None]
        if self.weight is not None:
            result *= self.weight
        if self.bias is not None:
            result += self.bias
        return result


ExpertWeights: TypeAlias = weights.ExpertWeights[Array, Linear]
"""Their `up` is `[experts, hidden, 2 * mlp]`, their `down` `[experts, mlp, hidden]`."""
LayerWeights: TypeAlias = weights.LayerWeights[Array, Linear, Norm]
DecoderWeights: TypeAlias = weights.DecoderWeights[Array, Linear, Norm]


def gather_weights(spec: DecoderSpec, tensors: Iterable[tuple[str, StoredWeight]]) -> DecoderWeights:
    """Takes the tensors over, one after another; none stays part of a file that somebody might replace."""

    def norm(kind: weights.NormKind, weight: Array, bias: Array | None) -> Norm:
        return Norm(kind, spec.norm_eps, weight + np.float32(spec.norm_weight_offset), bias)

    arrays = {name: _own_numbers(weight) for name, weight in tensors}
    return weights.WeightCollector(spec, arrays, _linear, norm, _turned).decoder()


def _linear(matrix: Array, bias: Array | None) -> Linear:
    return Linear(_turned(matrix), bias)


def _own_numbers(weight: StoredWeight) -> Array:
    numbers = to_float32(weight)
    return numbers.copy() if isinstance(weight, Weight) and numbers is weight.array else numbers


def _turned(matrix: Array) -> Array:
    """`[..., out, in]` as `[..., in, out]`."""
    return np.swapaxes(matrix, -1, -2)
