"""What the command line decides about models that are loaded by their requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OnDemandOptions:
    """The bounds within which models come and go."""

    queue_size: int = 100
    """How many requests may wait for one model."""
    load_timeout_s: float = 60.0
    """How long each of them waits."""
    backoff_s: float = 10.0
    """How long a load that failed is not tried again."""
    memory_budget_bytes: int = 0
    """What all workers together may have resident; 0 is no limit."""
    ttl_s: float = 0.0
    """How long a model may be idle; 0 is for ever."""
    pinned: tuple[str, ...] = ()
    """Models that are loaded at the start and stay."""
    sweep_interval_s: float = 1.0
    """How often idle times, memory and folders are looked at; a shorter time to live is looked at more often."""

    @property
    def effective_sweep_s(self) -> float:
        """The interval that does justice to the time to live."""
        return min(self.sweep_interval_s, max(0.02, self.ttl_s / 4)) if self.ttl_s > 0 else self.sweep_interval_s
