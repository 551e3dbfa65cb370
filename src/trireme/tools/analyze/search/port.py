"""What a search asks for: results of trials."""

from __future__ import annotations

from typing import Protocol

from trireme.tools.analyze.trial import Result, Trial


class Measure(Protocol):
    """Measures a trial, or finds it among those that were measured before."""

    def __call__(self, trial: Trial, is_probe: bool = False, is_again: bool = False) -> Result | None:
        """None where the trial cannot be measured; a probe is shorter; again, in place of what is remembered. Raises
        Interrupted and ClientError."""
