"""What a search asks for: results of trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trireme.tools.analyze.trial import Result, Trial

Rank = Callable[[Result], tuple[bool, float]]
"""Larger for a better result."""


class Measure(Protocol):
    """Measures a trial, or finds it among those that were measured before."""

    def __call__(self, trial: Trial, is_probe: bool = False, again: Rank | None = None) -> Result | None:
        """None where the trial cannot be measured; a probe is shorter. `again` has it measured once more: the better by
        this rank, of that and of what is remembered, is remembered and given. Raises Interrupted and ClientError."""
