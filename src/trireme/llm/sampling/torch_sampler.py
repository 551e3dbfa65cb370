"""Chooses tokens on the device, for the rows where the largest logit does not decide by itself."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch

from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import Sequence


class TorchSampler:
    """Works on rows of logits; knows nothing of the batch around them, so that a seed decides alone."""

    def __init__(self, spec: DecoderSpec, device: torch.device) -> None:
        self._vocab_size = spec.vocab_size
        self._device = device

    def join(self, sequence: Sequence) -> None:
        """A sequence has got a slot."""

    def choose(
        self, logits: torch.Tensor, rows: Items[int], sequences: Items[Sequence], positions: Items[int]
    ) -> tuple[torch.Tensor, dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]]:
        """A token for each of those rows, and by row what is to be reported of its probabilities."""
        places = torch.tensor(rows, device=self._device)
        return logits.index_select(0, places).argmax(-1).to(torch.int32), {}
