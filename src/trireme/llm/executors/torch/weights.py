"""The canonical tensors as PyTorch's, gathered by layer."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch.nn import functional

from trireme.llm.executors import weights
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix
from trireme.llm.models.checkpoint import CheckpointError, StoredWeight, Weight
from trireme.llm.models.quantized import QuantizedWeight, to_float32
from trireme.llm.models.spec import DecoderSpec

_IS_ARM = platform.machine() in ("aarch64", "arm64")
_TURNED_ROWS = range(2, 129) if _IS_ARM else range(8, 33)
"""With so many rows the libraries of products are faster if these are columns: on ARM in two thirds of the time, on
x86 with 8 to 16 rows in 0.4 to 0.9 of it, up to 32 in 0.6 to 1."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix `[out, in]` and its bias."""

    matrix: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        if rows.shape[0] in _TURNED_ROWS and _turns(rows):
            result = (self.matrix @ rows.t()).t().contiguous()
            return result if self.bias is None else result.add_(self.bias)
        return functional.linear(rows, self.matrix, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """Normalises the last axis, in float32 whatever the type of the values."""

    kind: weights.NormKind
    eps: float
    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        if self.kind == "rms":
            normed = functional.rms_norm(values.float(), self.weight.shape, self.weight, self.eps)
            return normed.to(values.dtype) if self.bias is None else (normed + self.bias).to(values.dtype)
        normed = functional.layer_norm(values.float(), self.weight.shape, self.weight, self.bias, self.eps)
        return normed.to(values.dtype)


def _turns(rows: torch.Tensor) -> bool:
    return rows.device.type == "cpu" and (_IS_ARM or rows.dtype is torch.float32)


ExpertWeights: TypeAlias = weights.ExpertWeights[torch.Tensor, Linear]
"""Their `up` is `[experts, 2 * mlp, hidden]`, their `down` `[experts, hidden, mlp]`."""
LayerWeights: TypeAlias = weights.LayerWeights[torch.Tensor, Linear, Norm]
DecoderWeights: TypeAlias = weights.DecoderWeights[torch.Tensor, Linear, Norm]


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


def to_packed(weight: QuantizedWeight) -> PackedMatrix:
    """A quantized matrix, in the memory where it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # as above
        codes, scales = torch.from_numpy(weight.codes), torch.from_numpy(weight.scales)
        zeros = None if weight.zeros is None else torch.from_numpy(weight.zeros)
    return PackedMatrix(weight.bits, codes.view(torch.float8_e4m3fn) if weight.bits == "fp8" else codes, scales, zeros)


def host_tensors(
    named: Iterable[tuple[str, StoredWeight]], dtype: torch.dtype = torch.float32
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each weight as a tensor in the host's memory; quantized ones are unpacked to the type."""
    for name, weight in named:
        if isinstance(weight, QuantizedWeight):
            yield name, torch.from_numpy(to_float32(weight)).to(dtype)
        else:
            yield name, to_tensor(weight)


def packed_host_tensors(named: Iterable[tuple[str, StoredWeight]]) -> Iterator[tuple[str, torch.Tensor | PackedMatrix]]:
    """The same, quantized ones as they are."""
    for name, weight in named:
        yield name, to_packed(weight) if isinstance(weight, QuantizedWeight) else to_tensor(weight)


def gather_weights(
    spec: DecoderSpec, tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device, dtype: torch.dtype
) -> DecoderWeights:
    """Takes the tensors over, each before the next is asked for; raises ExecutorError where one is missing.

    On a CPU none stays part of a file that somebody might replace.
    """
    return weight_collector(spec, take_over(tensors, device, dtype)).decoder()


def take_over(
    tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Each tensor on the device, in the type of the computation; those of norms in float32."""
    found = {}
    for name, tensor in tensors:
        is_of_norm = name.rsplit(".", 2)[-2].endswith("norm")
        taken = tensor.to(device=device, dtype=torch.float32 if is_of_norm else dtype)
        found[name] = taken.clone() if taken is tensor and device.type == "cpu" else taken
    return found


def weight_collector(
    spec: DecoderSpec, found: Mapping[str, torch.Tensor]
) -> weights.WeightCollector[torch.Tensor, Linear, Norm]:
    """What this executor makes of the tensors."""

    def norm(kind: weights.NormKind, weight: torch.Tensor, bias: torch.Tensor | None) -> Norm:
        offset = spec.norm_weight_offset
        return Norm(kind, spec.norm_eps, weight + offset if offset else weight, bias)

    return weights.WeightCollector(spec, found, Linear, norm, lambda matrices: matrices)
