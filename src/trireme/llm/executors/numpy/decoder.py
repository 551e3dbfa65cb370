"""One step of a decoder: from tokens to hidden states, layer by layer, and from these to logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trireme.llm.executors.numpy.adapters import AdapterRows, adapted
from trireme.llm.executors.numpy.attention import Attention, PagedCache, Rows
from trireme.llm.executors.numpy.mlp import FeedForward
from trireme.llm.executors.numpy.rotary import Angles, Rotation
from trireme.llm.executors.numpy.weights import Array, DecoderWeights, LayerWeights
from trireme.llm.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class StepTokens:
    """All tokens of a step, one sequence after another."""

    tokens: npt.NDArray[np.intp]
    positions: npt.NDArray[np.intp]
    is_long: npt.NDArray[np.bool_]
    """Whether the token's sequence is beyond the length that the model's plain rotation is for."""
    slots: npt.NDArray[np.intp]
    rows: tuple[Rows, ...]
    adapters: tuple[AdapterRows, ...] = ()


class Decoder:
    """The model's arithmetic; owns nothing that changes but the cache."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, cache: PagedCache) -> None:
        self._spec = spec
        self._weights = weights
        self._cache = cache
        self._attention = Attention(spec, cache)
        self._feed_forward = FeedForward(spec)
        ropes = {spec.rope_of(layer) for layer in range(spec.layer_count)} - {None}
        self._rotations = {rope: Rotation(rope) for rope in ropes if rope is not None}

    def hidden_states(self, step: StepTokens) -> Array:
        """What stands behind the last layer, `[tokens, hidden]`; the step's keys and values are then in the cache."""
        hidden = self._embed(step)
        angles = {rope: one.angles(step.positions, step.is_long) for rope, one in self._rotations.items()}
        for number, plain in enumerate(self._weights.layers):
            layer = adapted(plain, number, step.adapters) if step.adapters else plain
            rope = self._spec.rope_of(number)
            hidden = self._layer(number, layer, hidden, step, angles[rope] if rope else None)
        return hidden

    def logits(self, hidden: Array) -> Array:
        """`[rows, vocab]` of some rows of hidden states."""
        spec, weights = self._spec, self._weights
        if weights.norm is not None:
            hidden = weights.norm(hidden)
        if weights.head_in is not None:
            hidden = weights.head_in(hidden)
        logits = weights.head(hidden)
        if spec.logit_scale != 1.0:
            logits *= np.float32(spec.logit_scale)
        if spec.logit_softcap:
            logits = np.tanh(logits / np.float32(spec.logit_softcap)) * np.float32(spec.logit_softcap)
        return logits

    def _embed(self, step: StepTokens) -> Array:
        spec, weights = self._spec, self._weights
        hidden: Array = weights.embed[step.tokens]
        if spec.embedding_scale != 1.0:
            hidden = hidden * np.float32(spec.embedding_scale)
        if weights.embed_in is not None:
            hidden = weights.embed_in(hidden)
        if weights.positions is not None:
            hidden = hidden + weights.positions[step.positions + spec.position_offset]
        if weights.embed_norm is not None:
            hidden = weights.embed_norm(hidden)
        return hidden

    def _layer(self, number: int, layer: LayerWeights, hidden: Array, step: StepTokens, angles: Angles | None) -> Array:
        before = self._spec.norms_before
        normed = layer.attention_norm(hidden) if layer.attention_norm is not None and before else hidden
        attended = self._attend(number, layer, normed, step, angles)
        if layer.after_attention_norm is not None:
            attended = layer.after_attention_norm(attended)
        if self._spec.is_parallel:
            if layer.mlp_norm is not None:
                normed = layer.mlp_norm(hidden)
            return hidden + attended + self._feed_forward(layer, normed)
        hidden = hidden + attended
        if not before and layer.attention_norm is not None:
            hidden = layer.attention_norm(hidden)
        normed = layer.mlp_norm(hidden) if layer.mlp_norm is not None and before else hidden
        fed = self._feed_forward(layer, normed)
        if layer.after_mlp_norm is not None:
            fed = layer.after_mlp_norm(fed)
        fed += hidden
        return layer.mlp_norm(fed) if not before and layer.mlp_norm is not None else fed

    def _attend(
        self, number: int, layer: LayerWeights, normed: Array, step: StepTokens, angles: Angles | None
    ) -> Array:
        spec = self._spec
        joined = layer.qkv(normed).reshape(len(normed), -1, spec.head_size)
        middle = spec.head_count + spec.kv_head_count
        queries, keys, values = joined[:, : spec.head_count], joined[:, spec.head_count : middle], joined[:, middle:]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries[...] = layer.q_norm(queries)
            keys[...] = layer.k_norm(keys)
        rope = spec.rope_of(number)
        if rope is not None and angles is not None:
            self._rotations[rope].rotate(joined[:, :middle], angles)
        self._cache.write(number, step.slots, keys, values)
        return layer.o(self._attention(number, queries, step.rows))
