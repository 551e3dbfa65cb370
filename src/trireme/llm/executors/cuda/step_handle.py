"""A step that the device computes, or has computed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from trireme.llm.sampling.reports import Report, Reports
from trireme.llm.sampling.rows import SampledRow


@dataclass(slots=True)
class StepHandle:
    """A step under way."""

    host: torch.Tensor
    """Where its tokens are, once the event has passed."""
    rows: list[SampledRow]
    """What they are for."""
    slots: list[int]
    """Of their sequences, which may have none any more when tokens are chosen."""
    logits: torch.Tensor | None
    """Until its tokens are chosen."""
    tokens: torch.Tensor
    """The likeliest, on the device."""
    prompts: dict[int, list[Report]]
    """By the number of the chunk: of the prompt's tokens, some at a time."""
    logprobs: Reports = field(default_factory=Reports)
    chosen: torch.cuda.Event | None = None
    """None: what decides about its tokens is not known yet."""

    def chosen_rows(self) -> list[int]:
        """Those where the likeliest token is not simply taken; a sequence that has ended gets none."""
        return [
            number
            for number, row in enumerate(self.rows)
            if not row.sequence.params.is_plain_greedy and row.sequence.finish_reason is None
        ]
