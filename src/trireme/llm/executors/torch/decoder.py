"""One step of a decoder: from tokens to hidden states, layer by layer, and from these to logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from trireme.llm.executors.torch.adapters import AdapterRows, adapted
from trireme.llm.executors.torch.attention import Attention, Scoring
from trireme.llm.executors.torch.cache import PagedCache
from trireme.llm.executors.torch.layout import Layout
from trireme.llm.executors.torch.mlp import FeedForward
from trireme.llm.executors.torch.results import RowLogits
from trireme.llm.executors.torch.rotary import Angles, Rotation
from trireme.llm.executors.torch.weights import DecoderWeights, LayerWeights
from trireme.llm.models.spec import DecoderSpec, RopeSpec


@dataclass(frozen=True, slots=True)
class StepTokens:
    """All tokens of a step, on the device: first those that stand alone, then chunks."""

    tokens: torch.Tensor
    positions: torch.Tensor
    is_long: torch.Tensor
    """1 where the token's sequence is beyond the length that the model's plain rotation is for."""
    slots: torch.Tensor
    """Where keys and values go in the cache."""
    layouts: Mapping[int, Layout]
    """By the layers' window."""
    adapters: tuple[AdapterRows, ...] = ()


class Decoder:
    """The model's arithmetic; owns nothing that changes but the cache."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        cache: PagedCache,
        scoring: Scoring,
        *,
        has_static_shapes: bool = False,
    ) -> None:
        """`has_static_shapes`: no shape depends on what tensors hold, for devices that record steps."""
        self._spec = spec
        self._weights = weights
        self.pages = cache
        self.windows = frozenset(spec.window_of(layer) for layer in range(spec.layer_count))
        self.is_fused = scoring.is_fused
        self._attention = Attention(scoring, cache)
        self._feed_forward = FeedForward(spec, has_static_shapes=has_static_shapes)
        ropes = {spec.rope_of(layer) for layer in range(spec.layer_count)} - {None}
        self._rotations = {rope: Rotation(rope, weights.embed.device) for rope in ropes if rope is not None}

    def run(self, step: StepTokens, rows: torch.Tensor) -> RowLogits:
        """Computes a step; the logits of its rows are computed as they are asked for."""
        hidden = self.hidden_states(step).index_select(0, rows)
        return lambda first, last: self.logits(hidden[first:last])

    def hidden_states(self, step: StepTokens) -> torch.Tensor:
        """What stands behind the last layer, `[tokens, hidden]`; the step's keys and values are then in the cache."""
        hidden, angles = self.embed(step), self.angles(step)
        for number, plain in enumerate(self._weights.layers):
            layer = adapted(plain, number, step.adapters) if step.adapters else plain
            hidden = self.layer(number, layer, hidden, step, angles)
        return hidden

    def angles(self, step: StepTokens) -> Mapping[RopeSpec, Angles]:
        """Of each rotation that some layer has."""
        return {rope: one.angles(step.positions, step.is_long) for rope, one in self._rotations.items()}

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[rows, vocab]` of some rows of hidden states."""
        spec, weights = self._spec, self._weights
        if weights.norm is not None:
            hidden = weights.norm(hidden)
        if weights.head_in is not None:
            hidden = weights.head_in(hidden)
        logits = self._head(hidden)
        if spec.logit_scale != 1.0:
            logits = logits * spec.logit_scale
        if spec.logit_softcap:
            logits = torch.tanh(logits.float() / spec.logit_softcap) * spec.logit_softcap
        return logits

    def _lookup(self, tokens: torch.Tensor) -> torch.Tensor:
        return functional.embedding(tokens, self._weights.embed)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._weights.head(hidden)

    def embed(self, step: StepTokens) -> torch.Tensor:
        """What the first layer takes."""
        spec, weights = self._spec, self._weights
        hidden = self._lookup(step.tokens)
        if spec.embedding_scale != 1.0:
            hidden = hidden * spec.embedding_scale
        if weights.embed_in is not None:
            hidden = weights.embed_in(hidden)
        if weights.positions is not None:
            hidden = hidden + functional.embedding(step.positions + spec.position_offset, weights.positions)
        if weights.embed_norm is not None:
            hidden = weights.embed_norm(hidden)
        return hidden

    def layer(
        self,
        number: int,
        layer: LayerWeights,
        hidden: torch.Tensor,
        step: StepTokens,
        angles: Mapping[RopeSpec, Angles],
    ) -> torch.Tensor:
        """What one layer makes of hidden states, which stay as they are."""
        before = self._spec.norms_before
        normed = layer.attention_norm(hidden) if layer.attention_norm is not None and before else hidden
        rope = self._spec.rope_of(number)
        attended = self._attend(number, layer, normed, step, angles[rope] if rope else None)
        if layer.after_attention_norm is not None:
            attended = layer.after_attention_norm(attended)
        if self._spec.is_parallel:
            if layer.mlp_norm is not None:
                normed = layer.mlp_norm(hidden)
            return attended.add_(hidden).add_(self._feed_forward(layer, normed))
        hidden = attended.add_(hidden)
        if not before and layer.attention_norm is not None:
            hidden = layer.attention_norm(hidden)
        normed = layer.mlp_norm(hidden) if layer.mlp_norm is not None and before else hidden
        fed = self._feed_forward(layer, normed)
        if layer.after_mlp_norm is not None:
            fed = layer.after_mlp_norm(fed)
        fed += hidden
        return layer.mlp_norm(fed) if not before and layer.mlp_norm is not None else fed

    def _attend(
        self, number: int, layer: LayerWeights, normed: torch.Tensor, step: StepTokens, angles: Angles | None
    ) -> torch.Tensor:
        spec = self._spec
        joined = layer.qkv(normed).view(normed.shape[0], -1, spec.head_size)
        middle = spec.head_count + spec.kv_head_count
        queries, keys = joined[:, : spec.head_count], joined[:, spec.head_count : middle]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries.copy_(layer.q_norm(queries))
            keys.copy_(layer.k_norm(keys))
        rope = spec.rope_of(number)
        if rope is not None and angles is not None:
            self._rotations[rope].rotate(joined[:, :middle], angles)
        self.pages.write(number, step.slots, joined[:, spec.head_count :])
        return layer.o(self._attention(number, queries, step.layouts[spec.window_of(number)]))
