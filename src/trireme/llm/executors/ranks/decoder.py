"""A decoder that computes its rank's part of every layer and adds up with the others."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional

from trireme.llm.executors.ranks.group import RankGroup
from trireme.llm.executors.torch.attention import Scoring, scoring_of
from trireme.llm.executors.torch.cache import PagedCache
from trireme.llm.executors.torch.decoder import Decoder, StepTokens
from trireme.llm.executors.torch.mlp import FeedForward
from trireme.llm.executors.torch.rotary import Angles
from trireme.llm.executors.torch.weights import DecoderWeights, LayerWeights
from trireme.llm.models.spec import DecoderSpec


class RankDecoder(Decoder):
    """Runs in every rank at the same time."""

    def __init__(
        self, whole: DecoderSpec, own: DecoderSpec, weights: DecoderWeights, cache: PagedCache, group: RankGroup
    ) -> None:
        """`own` is the rank's part of the whole model."""
        super().__init__(own, weights, cache, _scoring(whole, own, weights.embed.device, group))
        self._group = group
        self._vocab_size = whole.vocab_size
        self._first_token = group.part.range_of(whole.vocab_size)[0]
        self._feed_forward = _SummedFeedForward(own, group)

    def abort(self) -> None:
        """Ends what waits for a rank that is gone; in any thread."""
        self._group.abort()

    def _lookup(self, tokens: torch.Tensor) -> torch.Tensor:
        table = self._weights.embed
        rows = tokens - self._first_token
        is_elsewhere = (rows < 0) | (rows >= table.shape[0])
        found = functional.embedding(rows.clamp(0, table.shape[0] - 1), table)
        return self._group.sum(found.masked_fill_(is_elsewhere.unsqueeze(1), 0))

    def _attend(
        self, number: int, layer: LayerWeights, normed: torch.Tensor, step: StepTokens, angles: Angles | None
    ) -> torch.Tensor:
        return self._group.sum(super()._attend(number, layer, normed, step, angles))

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._group.gather_columns(super()._head(hidden), self._vocab_size)


class _SummedFeedForward(FeedForward):
    """Each rank has some columns of the MLP, or of every expert."""

    def __init__(self, spec: DecoderSpec, group: RankGroup) -> None:
        super().__init__(spec)
        self._group = group

    def __call__(self, layer: LayerWeights, rows: torch.Tensor) -> torch.Tensor:
        return self._group.sum(super().__call__(layer, rows))


def _scoring(whole: DecoderSpec, own: DecoderSpec, device: torch.device, group: RankGroup) -> Scoring:
    """Biases are those of the rank's heads among all."""
    if not whole.has_alibi:
        return scoring_of(own, device)
    first, last = group.part.range_of(whole.head_count)
    biases = scoring_of(whole, device).biases
    assert biases is not None
    return replace(scoring_of(own, device), biases=biases[first:last])
