"""The canonical tensors as float32 arrays, gathered by layer, in the order in which a step multiplies with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trireme.llm.models.checkpoint import Weight, to_float32
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

    kind: Literal["rms", "layer"]
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


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The experts of one layer; those that every token passes stand apart."""

    router: Linear
    up: Array
    """[experts, hidden, 2 * mlp]"""
    down: Array
    """[experts, mlp, hidden]"""
    shared_up: Linear | None = None
    shared_down: Linear | None = None
    shared_gate: Linear | None = None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; what the architecture does not have is None."""

    qkv: Linear
    o: Linear
    attention_norm: Norm | None
    mlp_norm: Norm | None
    up: Linear | None
    down: Linear | None
    experts: ExpertWeights | None
    q_norm: Norm | None
    k_norm: Norm | None
    after_attention_norm: Norm | None
    after_mlp_norm: Norm | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """The whole model."""

    embed: Array
    positions: Array | None
    embed_norm: Norm | None
    embed_in: Linear | None
    layers: tuple[LayerWeights, ...]
    norm: Norm | None
    head_in: Linear | None
    head: Linear


def gather_weights(spec: DecoderSpec, weights: Iterable[tuple[str, Weight]]) -> DecoderWeights:
    """Takes the tensors over, one after another; none stays part of a file that somebody might replace."""
    return _Gathering(spec, {name: _own_numbers(weight) for name, weight in weights}).decoder()


def _own_numbers(weight: Weight) -> Array:
    numbers = to_float32(weight)
    return numbers.copy() if numbers is weight.array else numbers


class _Gathering:
    """The tensors by name while the model is put together."""

    def __init__(self, spec: DecoderSpec, arrays: dict[str, Array]) -> None:
        self._spec = spec
        self._arrays = arrays

    def decoder(self) -> DecoderWeights:
        embed = self._arrays["embed.weight"]
        return DecoderWeights(
            embed,
            self._arrays.get("positions.weight"),
            self._norm("embed_norm"),
            self._linear_or_none("embed_in"),
            tuple(self._layer(f"layers.{number}.") for number in range(self._spec.layer_count)),
            self._norm("norm"),
            self._linear_or_none("head_in"),
            Linear(_turned(embed), self._arrays.get("head.bias")) if self._spec.is_tied else self._linear("head"),
        )

    def _layer(self, prefix: str) -> LayerWeights:
        return LayerWeights(
            self._linear(prefix + "qkv"),
            self._linear(prefix + "o"),
            self._norm(prefix + "attention_norm"),
            self._norm(prefix + "mlp_norm"),
            self._linear_or_none(prefix + "up"),
            self._linear_or_none(prefix + "down"),
            self._experts(prefix),
            self._norm(prefix + "q_norm"),
            self._norm(prefix + "k_norm"),
            self._norm(prefix + "after_attention_norm"),
            self._norm(prefix + "after_mlp_norm"),
        )

    def _experts(self, prefix: str) -> ExpertWeights | None:
        if prefix + "router.weight" not in self._arrays:
            return None
        return ExpertWeights(
            self._linear(prefix + "router"),
            _turned(self._arrays[prefix + "experts.up.weight"]),
            _turned(self._arrays[prefix + "experts.down.weight"]),
            self._linear_or_none(prefix + "shared.up"),
            self._linear_or_none(prefix + "shared.down"),
            self._linear_or_none(prefix + "shared_gate"),
        )

    def _linear(self, name: str) -> Linear:
        return Linear(_turned(self._arrays[name + ".weight"]), self._arrays.get(name + ".bias"))

    def _linear_or_none(self, name: str) -> Linear | None:
        return self._linear(name) if name + ".weight" in self._arrays else None

    def _norm(self, name: str) -> Norm | None:
        weight = self._arrays.get(name + ".weight")
        if weight is None:
            return None
        is_of_heads = name.endswith((".q_norm", ".k_norm"))
        kind = self._spec.qk_norm or "rms" if is_of_heads else self._spec.norm
        return Norm(
            kind,
            self._spec.norm_eps,
            weight + np.float32(self._spec.norm_weight_offset),
            self._arrays.get(name + ".bias"),
        )


def _turned(matrix: Array) -> Array:
    """`[..., out, in]` as `[..., in, out]`."""
    return np.swapaxes(matrix, -1, -2)
