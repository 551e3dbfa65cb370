"""AWQ: columns that meet large inputs are made larger before they are rounded, and what comes before them smaller."""

from __future__ import annotations

import torch

from trireme.llm.models.quantized import QuantizedWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.quantization.groups import clipped_scales, gram_blocks, range_scales
from trireme.llm.quantization.rounding import group_size

_STEPS = 20
_SAMPLES = 512
"""Inputs that candidates are tried with."""

Layer = dict[str, torch.Tensor]
"""A layer's tensors by their names in it, in float32."""


class InputSample:
    """Some of a matrix's inputs, and the mean size of each column over all of them."""

    def __init__(self, texts: int) -> None:
        self._texts = texts
        self._rows: list[torch.Tensor] = []
        self._total: torch.Tensor | None = None
        self._count = 0

    def add(self, rows: torch.Tensor) -> None:
        """The inputs of one more text, `[rows, columns]`."""
        values = rows.float()
        sizes = values.abs().sum(0)
        self._total = sizes if self._total is None else self._total + sizes
        self._count += len(rows)
        kept = max(1, _SAMPLES // self._texts)
        self._rows.append(values[:: max(1, len(rows) // kept)][:kept].clone())

    @property
    def rows(self) -> torch.Tensor:
        return torch.cat(self._rows)[:_SAMPLES]

    @property
    def sizes(self) -> torch.Tensor:
        assert self._total is not None
        return self._total / self._count


def scale_layer(spec: DecoderSpec, layer: Layer, samples: dict[str, InputSample]) -> tuple[Layer, Layer]:
    """The layer with larger columns and what makes up for them, so that it computes the same.

    By matrix, the second value has what each column was multiplied with, and its inputs are divided by.
    """
    layer, factors = dict(layer), Layer()
    if spec.norms_before and "attention_norm.weight" in layer:
        shares = "mlp_norm.weight" not in layer and "up.weight" in layer
        behind = ("qkv", "up") if shares else ("qkv",)
        factors |= _scale_behind_norm(spec, layer, "attention_norm", behind, samples["qkv"])
        if "mlp_norm.weight" in layer and "up.weight" in layer:
            factors |= _scale_behind_norm(spec, layer, "mlp_norm", ("up",), samples["up"])
    values = slice((spec.head_count + spec.kv_head_count) * spec.head_size, None)
    factors["o"] = _scale_behind_rows(layer, "o", "qkv", values, samples["o"], spec.group_size, spec.head_size)
    if "up.weight" in layer and (spec.is_gated or spec.activation == "relu"):
        halves = slice(spec.mlp_size if spec.is_gated else 0, None)
        factors["down"] = _scale_behind_rows(layer, "down", "up", halves, samples["down"], 1, spec.mlp_size)
    return layer, factors


def round_clipped(matrix: torch.Tensor, inputs: torch.Tensor) -> QuantizedWeight:
    """In four bits, each group clipped as it suits the inputs."""
    size = group_size(matrix.shape[1])
    assert size is not None, "asked for by plan.py"
    grouped = matrix.view(matrix.shape[0], -1, size)
    scales = clipped_scales(grouped, gram_blocks(inputs, size))
    return scales.packed(scales.codes(grouped))


def _scale_behind_norm(
    spec: DecoderSpec, layer: Layer, norm: str, matrices: tuple[str, ...], sample: InputSample
) -> Layer:
    joined = torch.cat([layer[f"{name}.weight"] for name in matrices])
    factors = _best_factors(joined, sample.rows, sample.sizes)
    for name in matrices:
        layer[f"{name}.weight"] = layer[f"{name}.weight"] * factors
    offset = spec.norm_weight_offset
    layer[f"{norm}.weight"] = (layer[f"{norm}.weight"] + offset) / factors - offset
    if f"{norm}.bias" in layer:
        layer[f"{norm}.bias"] = layer[f"{norm}.bias"] / factors
    return dict.fromkeys(matrices, factors)


def _scale_behind_rows(
    layer: Layer, name: str, before: str, rows: slice, sample: InputSample, shared: int, head_size: int
) -> torch.Tensor:
    """Where inputs are results of another matrix's rows; `shared`: so many heads of them come from one head."""
    sizes = sample.sizes.view(-1, shared, head_size).mean(1, keepdim=True).expand(-1, shared, -1).reshape(-1)
    factors = _best_factors(layer[f"{name}.weight"], sample.rows, sizes)
    own = factors.view(-1, shared, head_size)[:, 0].reshape(-1)
    layer[f"{name}.weight"] = layer[f"{name}.weight"] * factors
    for kind in (f"{before}.weight", f"{before}.bias"):
        if kind in layer:
            layer[kind] = layer[kind].clone()
            layer[kind][rows] /= own if kind.endswith("bias") else own.unsqueeze(1)
    return factors


def _best_factors(matrix: torch.Tensor, inputs: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """For each column, some power of the size of its inputs: that with which the results are nearest."""
    best = torch.ones_like(sizes)
    size = group_size(matrix.shape[1])
    if size is None:
        return best
    least = _error(matrix, inputs, best, size)
    for step in range(1, _STEPS):
        factors = sizes.clamp(min=1e-4) ** (step / _STEPS)
        factors = factors / (factors.max() * factors.min()).sqrt()
        error = _error(matrix, inputs, factors, size)
        if error < least:
            best, least = factors, error
    return best


def _error(matrix: torch.Tensor, inputs: torch.Tensor, factors: torch.Tensor, size: int) -> float:
    grouped = (matrix * factors).view(matrix.shape[0], -1, size)
    scales = range_scales(grouped)
    off = scales.numbers(scales.codes(grouped)).view(matrix.shape) / factors - matrix
    return float((inputs @ off.t()).square_().mean())
