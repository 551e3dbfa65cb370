"""Activations by number, as kernels apply them to values that they hold already."""

from __future__ import annotations

import triton
import triton.language as tl

NONE, SILU, GELU, GELU_TANH, RELU, RELU_SQUARED = 0, 1, 2, 3, 4, 5
ACTIVATIONS = {"silu": SILU, "gelu": GELU, "gelu_tanh": GELU_TANH, "relu": RELU, "relu_squared": RELU_SQUARED}


@triton.jit
def _erf_gelu(x):  # type: ignore[no-untyped-def]
    """With the error function to 1.5e-7 (Abramowitz and Stegun 7.1.26): the exact one takes longer than reading x."""
    size = tl.abs(x) * 0.7071067811865476
    root = tl.rsqrt(1.0 + 0.3275911 * size)
    t = root * root
    series = 1.421413741 + t * (-1.453152027 + t * 1.061405429)
    half_tail = 0.5 * t * (0.254829592 + t * (-0.284496736 + t * series)) * tl.exp(-size * size)
    return x * tl.where(x >= 0, 1.0 - half_tail, half_tail)


@triton.jit
def _tanh_gelu(x):  # type: ignore[no-untyped-def]
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(2.0 * inner)


@triton.jit
def activate(x, ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Applies the activation of that number."""
    if ACT == 1:
        x = x * tl.sigmoid(x)
    elif ACT == 2:
        x = _erf_gelu(x)
    elif ACT == 3:
        x = _tanh_gelu(x)
    elif ACT == 4:
        x = tl.maximum(x, 0.0)
    elif ACT == 5:
        x = tl.maximum(x, 0.0)
        x = x * x
    return x
