"""The penalty of tokens that have been there, in a batch of prompts of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def penalty_without_padding(
    torch: Any, transformers: Any, penalty: float, batch: Mapping[str, Any]
) -> Callable[[Any, Any], Any]:
    """A processor of logits; the library's own takes the padding of a short prompt for a token that has been there,
    and that is often the one that ends a text."""
    penalize = transformers.RepetitionPenaltyLogitsProcessor(penalty)
    ids = batch["input_ids"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    prompts = torch.where(mask.bool(), ids, ids[:, -1:])  # padding is on the left; a token twice is as good as once

    def process(input_ids: Any, scores: Any) -> Any:
        beams = prompts.repeat_interleave(input_ids.shape[0] // prompts.shape[0], dim=0)
        return penalize(torch.cat([beams, input_ids[:, prompts.shape[1] :]], dim=1), scores)

    return process
