"""The canonical tensors as PyTorch's, gathered by layer."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.checkpoint import CheckpointError, Weight
from trireme.llm.models.spec import DecoderSpec

_TURNS = platform.machine() in ("aarch64", "arm64")
"""Whether the library of products is faster with few columns than with few rows: on ARM in two thirds of the time."""
_MOST_TURNED_ROWS = 128


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix `[out, in]` and its bias."""

    matrix: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        if _TURNS and 1 < rows.shape[0] <= _MOST_TURNED_ROWS and rows.device.type == "cpu":
            result = (self.matrix @ rows.t()).t().contiguous()
            return result if self.bias is None else result.add_(self.bias)
        return functional.linear(rows, self.matrix, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """Normalises the last axis, in float32 whatever the type of the values."""

    kind: Literal["rms", "layer"]
    eps: float
    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        if self.kind == "rms":
            normed = functional.rms_norm(values.float(), self.weight.shape, self.weight, self.eps)
            return normed.to(values.dtype) if self.bias is None else (normed + self.bias).to(values.dtype)
        normed = functional.layer_norm(values.float(), self.weight.shape, self.weight, self.bias, self.eps)
        return normed.to(values.dtype)


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The experts of one layer; the one that every token passes stands apart."""

    router: Linear
    up: torch.Tensor
    """[experts, 2 * mlp, hidden]"""
    down: torch.Tensor
    """[experts, hidden, mlp]"""
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

    embed: torch.Tensor
    positions: torch.Tensor | None
    embed_norm: Norm | None
    embed_in: Linear | None
    layers: tuple[LayerWeights, ...]
    norm: Norm | None
    head_in: Linear | None
    head: Linear


def to_tensor(weight: Weight) -> torch.Tensor:
    """The numbers of a weight, in the memory where they are."""
    array = weight.array
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the memory of a file is not for writing: nobody writes
        if weight.dtype == "BF16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if weight.dtype in ("F32", "F16", "F64"):
            return torch.from_numpy(array)
    raise CheckpointError(
        f"weights of type {weight.dtype} cannot be computed with; use a checkpoint in F32, F16 or BF16"
    )


def host_tensors(weights: Iterable[tuple[str, Weight]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Each weight as a tensor in the host's memory."""
    for name, weight in weights:
        yield name, to_tensor(weight)


def gather_weights(
    spec: DecoderSpec, tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device, dtype: torch.dtype
) -> DecoderWeights:
    """Takes the tensors over, each before the next is asked for; raises ExecutorError where one is missing.

    On a CPU none stays part of a file that somebody might replace.
    """
    found = {}
    for name, tensor in tensors:
        is_of_norm = name.rsplit(".", 2)[-2].endswith("norm")
        taken = tensor.to(device=device, dtype=torch.float32 if is_of_norm else dtype)
        found[name] = taken.clone() if taken is tensor and device.type == "cpu" else taken
    return _Gathering(spec, found).decoder()


class _Gathering:
    """The tensors by name while the model is put together."""

    def __init__(self, spec: DecoderSpec, tensors: dict[str, torch.Tensor]) -> None:
        self._spec = spec
        self._tensors = tensors

    def decoder(self) -> DecoderWeights:
        embed = self._take("embed.weight")
        return DecoderWeights(
            embed,
            self._tensors.get("positions.weight"),
            self._norm("embed_norm"),
            self._linear_or_none("embed_in"),
            tuple(self._layer(f"layers.{number}.") for number in range(self._spec.layer_count)),
            self._norm("norm"),
            self._linear_or_none("head_in"),
            Linear(embed, self._tensors.get("head.bias")) if self._spec.is_tied else self._linear("head"),
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
        if prefix + "router.weight" not in self._tensors:
            return None
        return ExpertWeights(
            self._linear(prefix + "router"),
            self._take(prefix + "experts.up.weight"),
            self._take(prefix + "experts.down.weight"),
            self._linear_or_none(prefix + "shared.up"),
            self._linear_or_none(prefix + "shared.down"),
            self._linear_or_none(prefix + "shared_gate"),
        )

    def _take(self, name: str) -> torch.Tensor:
        if name not in self._tensors:
            raise ExecutorError(f"the checkpoint has no weights for '{name}'")
        return self._tensors[name]

    def _linear(self, name: str) -> Linear:
        return Linear(self._take(name + ".weight"), self._tensors.get(name + ".bias"))

    def _linear_or_none(self, name: str) -> Linear | None:
        return self._linear(name) if name + ".weight" in self._tensors else None

    def _norm(self, name: str) -> Norm | None:
        weight = self._tensors.get(name + ".weight")
        if weight is None:
            return None
        is_of_heads = name.endswith((".q_norm", ".k_norm"))
        kind = self._spec.qk_norm or "rms" if is_of_heads else self._spec.norm
        if self._spec.norm_weight_offset:
            weight = weight + self._spec.norm_weight_offset
        return Norm(kind, self._spec.norm_eps, weight, self._tensors.get(name + ".bias"))
