"""What follows attention in a layer: an MLP, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from trireme.llm.executors.torch.weights import ExpertWeights, LayerWeights, Linear
from trireme.llm.models.spec import Activation, DecoderSpec, ExpertSpec

ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda values: functional.gelu(values, approximate="tanh"),
    "relu": functional.relu,
    "relu_squared": lambda values: functional.relu(values).square_(),
}


class FeedForward:
    """The second half of a layer."""

    def __init__(self, spec: DecoderSpec, *, has_static_shapes: bool = False) -> None:
        """`has_static_shapes`: every token passes every expert, so that no shape depends on the router's choice."""
        self._choose = self._all_experts if has_static_shapes else self._chosen_experts
        self._activate = ACTIVATIONS[spec.activation]
        self._is_gated = spec.is_gated
        self._experts = spec.experts

    def __call__(self, layer: LayerWeights, rows: torch.Tensor) -> torch.Tensor:
        """`[tokens, hidden]` to the same; what comes back is new."""
        if layer.experts is not None and self._experts is not None:
            return self._mixture(self._experts, layer.experts, rows)
        assert layer.up is not None
        assert layer.down is not None
        return self._plain(layer.up, layer.down, rows)

    def _plain(self, up: Linear, down: Linear, rows: torch.Tensor) -> torch.Tensor:
        return down(self._activated(up(rows)))

    def _activated(self, values: torch.Tensor) -> torch.Tensor:
        if not self._is_gated:
            return self._activate(values)
        half = values.shape[-1] // 2
        return self._activate(values[..., :half]).mul_(values[..., half:])

    def _mixture(self, spec: ExpertSpec, weights: ExpertWeights, rows: torch.Tensor) -> torch.Tensor:
        shares, chosen = route(weights.router(rows), spec)
        result = self._choose(spec, weights, rows, shares, chosen)
        if weights.shared_up is not None and weights.shared_down is not None:
            shared = self._plain(weights.shared_up, weights.shared_down, rows)
            if weights.shared_gate is not None:
                shared = shared * weights.shared_gate(rows).sigmoid_()
            result += shared
        return result

    def _chosen_experts(
        self, spec: ExpertSpec, weights: ExpertWeights, rows: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """Tokens sorted by their experts, so that each expert is multiplied with once."""
        order = chosen.flatten().argsort(stable=True)
        tokens = order // spec.chosen
        sorted_rows = rows.index_select(0, tokens)
        found = torch.empty_like(sorted_rows)
        first = 0
        for expert, count in enumerate(chosen.flatten().bincount(minlength=spec.count).tolist()):
            if count:
                inner = self._activated(functional.linear(sorted_rows[first : first + count], weights.up[expert]))
                found[first : first + count] = functional.linear(inner, weights.down[expert])
                first += count
        found *= shares.flatten().index_select(0, order).unsqueeze(1)
        return torch.zeros_like(rows).index_add_(0, tokens, found)

    def _all_experts(
        self, spec: ExpertSpec, weights: ExpertWeights, rows: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """Each expert's share of a token is 0 where the token does not pass it."""
        given = torch.zeros(rows.shape[0], spec.count, dtype=rows.dtype, device=rows.device)
        given = given.scatter(1, chosen, shares.to(rows.dtype))
        result = torch.zeros_like(rows)
        for expert in range(spec.count):
            inner = self._activated(functional.linear(rows, weights.up[expert]))
            result += functional.linear(inner, weights.down[expert]) * given[:, expert : expert + 1]
        return result


def route(logits: torch.Tensor, spec: ExpertSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """The shares and the numbers of the experts that each token passes: `[tokens, chosen]` each."""
    shares, chosen = logits.softmax(-1, dtype=torch.float32).topk(spec.chosen)
    if spec.normalises_chosen:
        shares = shares / shares.sum(-1, keepdim=True)
    return shares, chosen
