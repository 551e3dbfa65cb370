"""A decoder's canonical tensors gathered by layer, whatever holds their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from trireme.llm.adapters.adapter import MatrixName
from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.spec import DecoderSpec

A = TypeVar("A")
"""An array of numbers."""
L = TypeVar("L")
"""A matrix with its bias, ready to multiply with."""
N = TypeVar("N")
"""A norm, ready to be called."""

NormKind = Literal["rms", "layer"]


@dataclass(frozen=True, slots=True)
class ExpertWeights(Generic[A, L]):
    """The experts of one layer; the one that every token passes stands apart."""

    router: L
    up: A
    """Of all experts, one after another, as the executor multiplies with them."""
    down: A
    shared_up: L | None = None
    shared_down: L | None = None
    shared_gate: L | None = None


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[A, L, N]):
    """One layer; what the architecture does not have is None."""

    qkv: L
    o: L
    attention_norm: N | None
    mlp_norm: N | None
    up: L | None
    down: L | None
    experts: ExpertWeights[A, L] | None
    q_norm: N | None
    k_norm: N | None
    after_attention_norm: N | None
    after_mlp_norm: N | None

    def with_matrices(self, change: Callable[[MatrixName, L], L]) -> LayerWeights[A, L, N]:
        """The layer with each matrix that adapters may add to as `change` returns it."""
        return replace(
            self,
            qkv=change("qkv", self.qkv),
            o=change("o", self.o),
            up=None if self.up is None else change("up", self.up),
            down=None if self.down is None else change("down", self.down),
        )


@dataclass(frozen=True, slots=True)
class DecoderWeights(Generic[A, L, N]):
    """The whole model."""

    embed: A
    positions: A | None
    embed_norm: N | None
    embed_in: L | None
    layers: tuple[LayerWeights[A, L, N], ...]
    norm: N | None
    head_in: L | None
    head: L


@dataclass(frozen=True, slots=True)
class WeightCollector(Generic[A, L, N]):
    """The arrays by their canonical names, and what an executor makes of them."""

    spec: DecoderSpec
    arrays: Mapping[str, A]
    linear: Callable[[A, A | None], L]
    """Of a matrix `[out, in]` and a bias."""
    norm: Callable[[NormKind, A, A | None], N]
    """Of weights and a bias."""
    matrices: Callable[[A], A]
    """Of the experts' `[experts, out, in]`."""

    def decoder(self) -> DecoderWeights[A, L, N]:
        """All of it; raises ExecutorError where a tensor is missing."""
        embed = self._take("embed.weight")
        return DecoderWeights(
            embed,
            self.arrays.get("positions.weight"),
            self._norm("embed_norm"),
            self._linear_or_none("embed_in"),
            tuple(self.layer(f"layers.{number}.") for number in range(self.spec.layer_count)),
            self._norm("norm"),
            self._linear_or_none("head_in"),
            self.linear(embed, self.arrays.get("head.bias")) if self.spec.is_tied else self._linear("head"),
        )

    def layer(self, prefix: str) -> LayerWeights[A, L, N]:
        """The layer whose tensors' names begin so."""
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

    def _experts(self, prefix: str) -> ExpertWeights[A, L] | None:
        if prefix + "router.weight" not in self.arrays:
            return None
        return ExpertWeights(
            self._linear(prefix + "router"),
            self.matrices(self._take(prefix + "experts.up.weight")),
            self.matrices(self._take(prefix + "experts.down.weight")),
            self._linear_or_none(prefix + "shared.up"),
            self._linear_or_none(prefix + "shared.down"),
            self._linear_or_none(prefix + "shared_gate"),
        )

    def _take(self, name: str) -> A:
        if name not in self.arrays:
            raise ExecutorError(f"the checkpoint has no weights for '{name}'")
        return self.arrays[name]

    def _linear(self, name: str) -> L:
        return self.linear(self._take(name + ".weight"), self.arrays.get(name + ".bias"))

    def _linear_or_none(self, name: str) -> L | None:
        return self._linear(name) if name + ".weight" in self.arrays else None

    def _norm(self, name: str) -> N | None:
        weight = self.arrays.get(name + ".weight")
        if weight is None:
            return None
        is_of_heads = name.endswith((".q_norm", ".k_norm"))
        kind = self.spec.qk_norm or "rms" if is_of_heads else self.spec.norm
        return self.norm(kind, weight, self.arrays.get(name + ".bias"))
