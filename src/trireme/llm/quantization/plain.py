"""Quantization without calibration: each matrix to the nearest, with the norm before it."""

from __future__ import annotations

import numpy as np

from trireme.llm.models.checkpoint import Float32Array, StoredWeight, Weight, to_float32
from trireme.llm.models.quantized import Bits, QuantizedWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.quantization.plan import Method, Tensors, bits_of, folded_norms
from trireme.llm.quantization.rounding import NotFiniteError, round_matrix


class QuantizationError(Exception):
    """A model that cannot be quantized; the text says why and what to do."""


def quantize_layer(spec: DecoderSpec, prefix: str, tensors: Tensors, method: Method) -> Tensors:
    """The tensors of a layer, or those outside of layers, with matrices of few bits; raises QuantizationError."""
    scales, result = _fold(spec, tensors, method), Tensors()
    for name, weight in tensors.items():
        module = name.removesuffix(".weight")
        bits = bits_of(module, weight.shape, method) if name != module else None
        if bits is not None:
            result[name] = rounded(prefix + name, _numbers(weight, scales.get(module)), bits)
        elif module in scales:
            result[name] = _as_stored(scales[module], weight)
        else:
            result[name] = weight
    return result


def rounded(name: str, matrix: Float32Array, bits: Bits) -> QuantizedWeight:
    """The matrix to the nearest; raises QuantizationError."""
    try:
        return round_matrix(matrix, bits)
    except NotFiniteError as error:
        raise QuantizationError(f"'{name}' cannot be quantized: {error}; the checkpoint is damaged") from None


def _fold(spec: DecoderSpec, tensors: Tensors, method: Method) -> dict[str, Float32Array]:
    """By matrix: what its columns are multiplied with. By norm: its new weights, which do nothing."""
    found: dict[str, Float32Array] = {}
    for norm, matrices in folded_norms(spec, tensors).items():
        if method == "none":
            break
        offset = np.float32(spec.norm_weight_offset)
        weights = to_float32(tensors[f"{norm}.weight"]) + offset
        found |= dict.fromkeys(matrices, weights)
        found[norm] = np.full_like(weights, 1 - offset)
    return found


def _numbers(weight: StoredWeight, scales: Float32Array | None) -> Float32Array:
    numbers = to_float32(weight)
    return numbers if scales is None else numbers * scales


def _as_stored(numbers: Float32Array, like: StoredWeight) -> Weight:
    """In the type of the tensor that they replace."""
    dtype = like.dtype if isinstance(like, Weight) else "F32"
    return to_stored(numbers, dtype)


def to_stored(numbers: Float32Array, dtype: str) -> Weight:
    """Numbers in the type of a file; of bfloat16 to the nearest."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        rounded_bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return Weight(rounded_bits.astype(np.uint16), "BF16")
    kind = {"F16": np.float16, "F64": np.float64}.get(dtype, np.float32)
    return Weight(numbers.astype(kind), dtype if dtype in ("F16", "F64") else "F32")
