"""How long to wait before a dead worker is started again."""

from __future__ import annotations

from trireme.core.clock import Clock, monotonic_ns

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0
HEALTHY_AFTER_S = 60


class Backoff:
    """At once the first time, then ever longer, until a worker has served for a minute."""

    def __init__(self, clock: Clock = monotonic_ns) -> None:
        self._clock = clock
        self._delay_s = 0.0
        self._serving_since_ns: int | None = None

    def note_serving(self) -> None:
        """A worker serves from now on."""
        self._serving_since_ns = self._clock()

    def next_delay_s(self) -> float:
        """Called once before each attempt to start."""
        since, self._serving_since_ns = self._serving_since_ns, None
        if since is not None and self._clock() - since >= HEALTHY_AFTER_S * 1_000_000_000:
            self._delay_s = 0.0
        delay = self._delay_s
        self._delay_s = min(LONGEST_DELAY_S, delay * 2) if delay else FIRST_DELAY_S
        return delay
