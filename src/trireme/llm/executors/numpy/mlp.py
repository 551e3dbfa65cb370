"""What follows attention in a layer: an MLP, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trireme.llm.executors.numpy.weights import Array, ExpertWeights, LayerWeights, Linear
from trireme.llm.models.spec import Activation, DecoderSpec, ExpertSpec

_TANH_SCALE = np.float32(np.sqrt(2 / np.pi))
_ERF_STEP = np.float32(0.3275911)
_ERF_FACTORS = [np.float32(value) for value in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)]


def silu(values: Array) -> Array:
    result: Array = values / (1 + np.exp(-values))
    return result


def gelu_tanh(values: Array) -> Array:
    inner = _TANH_SCALE * (values + np.float32(0.044715) * values * values * values)
    result: Array = np.float32(0.5) * values * (1 + np.tanh(inner))
    return result


def gelu(values: Array) -> Array:
    return np.float32(0.5) * values * (1 + erf(values * np.float32(np.sqrt(0.5))))


def erf(values: Array) -> Array:
    """The error function to seven digits, by a polynomial (Abramowitz and Stegun 7.1.26)."""
    size = np.abs(values)
    step = 1 / (1 + _ERF_STEP * size)
    sums = np.zeros_like(size)
    for factor in _ERF_FACTORS:
        sums = (sums + factor) * step
    result: Array = np.sign(values) * (1 - sums * np.exp(-size * size))
    return result


def relu(values: Array) -> Array:
    return np.maximum(values, 0)


def relu_squared(values: Array) -> Array:
    positive = relu(values)
    return positive * positive


ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "relu_squared": relu_squared,
}


class FeedForward:
    """The second half of a layer."""

    def __init__(self, spec: DecoderSpec) -> None:
        self._activate = ACTIVATIONS[spec.activation]
        self._is_gated = spec.is_gated
        self._experts = spec.experts

    def __call__(self, layer: LayerWeights, rows: Array) -> Array:
        """`[tokens, hidden]` to the same; what comes back is new."""
        if layer.experts is not None and self._experts is not None:
            return self._mixture(self._experts, layer.experts, rows)
        assert layer.up is not None
        assert layer.down is not None
        return self._plain(layer.up, layer.down, rows)

    def _plain(self, up: Linear, down: Linear, rows: Array) -> Array:
        return down(self._activated(up(rows)))

    def _activated(self, values: Array) -> Array:
        if not self._is_gated:
            return self._activate(values)
        half = values.shape[-1] // 2
        result = self._activate(values[..., :half])
        result *= values[..., half:]
        return result

    def _mixture(self, spec: ExpertSpec, weights: ExpertWeights, rows: Array) -> Array:
        shares, chosen = route(weights.router(rows), spec)
        result = np.zeros_like(rows)
        for expert in np.unique(chosen):
            tokens, places = np.nonzero(chosen == expert)
            found = self._activated(rows[tokens] @ weights.up[expert]) @ weights.down[expert]
            result[tokens] += found * shares[tokens, places, None]
        if weights.shared_up is not None and weights.shared_down is not None:
            shared = self._plain(weights.shared_up, weights.shared_down, rows)
            if weights.shared_gate is not None:
                shared /= 1 + np.exp(-weights.shared_gate(rows))
            result += shared
        return result


def route(logits: Array, spec: ExpertSpec) -> tuple[Array, npt.NDArray[np.intp]]:
    """The shares and the numbers of the experts that each token passes: `[tokens, chosen]` each."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    chosen = np.argsort(-weights, axis=-1, kind="stable")[:, : spec.chosen]
    shares = np.take_along_axis(weights, chosen, -1)
    if spec.normalises_chosen:
        shares /= shares.sum(-1, keepdims=True)
    return shares, chosen
