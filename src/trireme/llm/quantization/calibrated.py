"""Quantization by the inputs that matrices meet: layer by layer, each with the texts that came through those before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from trireme.llm.executors.torch.devices import place, torch_device
from trireme.llm.executors.torch.weights import to_tensor
from trireme.llm.models.checkpoint import StoredWeight, Weight
from trireme.llm.models.quantized import QuantizedWeight, to_float32
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.quantization.awq import InputSample, Layer, round_clipped, scale_layer
from trireme.llm.quantization.gptq import GramMatrix, gptq
from trireme.llm.quantization.layer_walk import LayerWalk
from trireme.llm.quantization.plain import QuantizationError, quantize_layer, rounded, to_stored
from trireme.llm.quantization.plan import MATRICES, Method, Tensors, bits_of, by_layer, folded_norms
from trireme.llm.quantization.rounding import group_size

Quantized = dict[str, torch.Tensor | QuantizedWeight]


def quantize_calibrated(
    spec: DecoderSpec,
    weights: Iterable[tuple[str, StoredWeight]],
    method: Method,
    sequences: Sequence[Sequence[int]],
    device: str,
) -> Iterator[tuple[str, Tensors, Tensors]]:
    """Prefix, tensors before and tensors after of each layer, and of what is outside; raises QuantizationError."""
    where = torch_device("cpu" if device == "numpy" else place(device))
    walk: LayerWalk | None = None
    for prefix, tensors in by_layer(weights):
        if not prefix:
            if walk is None:
                outside = {name: _plain(name, weight) for name, weight in tensors.items()}
                dtype = outside["embed.weight"].dtype if where.type != "cpu" else torch.float32
                walk = LayerWalk(spec, outside, sequences, where, dtype)
            yield prefix, tensors, quantize_layer(spec, prefix, tensors, method)
            continue
        assert walk is not None, "embeddings come first"
        number = int(prefix.split(".")[1])
        layer = _folded(spec, {name: _finite(prefix + name, weight).to(where) for name, weight in tensors.items()})
        run = _awq_layer if method == "awq" else _gptq_layer
        yield prefix, tensors, _as_before(run(spec, number, layer, walk, len(sequences)), tensors)


def _awq_layer(spec: DecoderSpec, number: int, layer: Layer, walk: LayerWalk, texts: int) -> Quantized:
    samples: dict[str, InputSample] = defaultdict(lambda: InputSample(texts))
    walk.layer(number, layer, lambda name, rows: samples[name].add(rows), advances=True)
    scaled, factors = scale_layer(spec, layer, samples)
    result: Quantized = dict(scaled)
    for name in _matrices(layer):
        matrix = scaled[f"{name}.weight"]
        if bits_of(name, tuple(matrix.shape), "awq") != "int4":
            result[f"{name}.weight"] = rounded(name, _numbers(matrix), "int8")
            continue
        inputs = samples[name].rows
        if not bool(torch.isfinite(inputs).all()):
            raise QuantizationError(f"layer {number} has inputs that are not finite; the checkpoint is damaged")
        result[f"{name}.weight"] = round_clipped(matrix, inputs / factors[name] if name in factors else inputs)
    return result


def _gptq_layer(spec: DecoderSpec, number: int, layer: Layer, walk: LayerWalk, texts: int) -> Quantized:
    grams: dict[str, GramMatrix] = defaultdict(GramMatrix)
    walk.layer(number, layer, lambda name, rows: grams[name].add(rows), advances=False)
    result: Quantized = dict(layer)
    rounded_layer = dict(layer)
    for name in _matrices(layer):
        matrix, gram = layer[f"{name}.weight"], grams[name].total
        size = group_size(matrix.shape[1])
        if gram is None or not bool(torch.isfinite(gram).all()):
            raise QuantizationError(f"layer {number} has inputs that are not finite; the checkpoint is damaged")
        found = rounded(name, _numbers(matrix), "int8") if size is None else gptq(matrix, gram, size)
        result[f"{name}.weight"] = found
        rounded_layer[f"{name}.weight"] = torch.from_numpy(to_float32(found))
    walk.layer(number, rounded_layer, advances=True)
    return result


def _matrices(layer: Layer) -> list[str]:
    return [name for name in MATRICES if f"{name}.weight" in layer]


def _folded(spec: DecoderSpec, layer: Layer) -> Layer:
    """With the weights of norms in the matrices behind them, where that is possible."""
    for norm, matrices in folded_norms(spec, layer).items():
        scales = layer[f"{norm}.weight"] + spec.norm_weight_offset
        for name in matrices:
            layer[f"{name}.weight"] = layer[f"{name}.weight"] * scales
        layer[f"{norm}.weight"] = torch.full_like(scales, 1 - spec.norm_weight_offset)
    return layer


def _plain(name: str, weight: StoredWeight) -> torch.Tensor:
    if not isinstance(weight, Weight):
        raise QuantizationError(f"'{name}' is quantized already")
    return to_tensor(weight)


def _finite(name: str, weight: StoredWeight) -> torch.Tensor:
    tensor = _plain(name, weight).float()
    if not bool(torch.isfinite(tensor).all()):
        raise QuantizationError(
            f"'{name}' cannot be quantized: it has numbers that are infinite, or none at all; the checkpoint is damaged"
        )
    return tensor


def _numbers(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return tensor.float().cpu().numpy()


def _as_before(found: Quantized, before: Tensors) -> Tensors:
    """Tensors that stay floats in the type that they had."""
    result = Tensors()
    for name, value in found.items():
        like = before[name]
        if isinstance(value, QuantizedWeight):
            result[name] = value
        elif isinstance(like, Weight):
            result[name] = to_stored(_numbers(value), like.dtype)
    return result
