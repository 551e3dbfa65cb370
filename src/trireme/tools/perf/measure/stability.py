"""Whether the last windows agree."""

from __future__ import annotations

from collections.abc import Sequence

WINDOWS = 3


def is_stable(
    throughputs: Sequence[float], latencies: Sequence[float], percent: float, *, checks_latency: bool = True
) -> bool:
    """Whether the last three windows lie no further apart than this, and something was done in each."""
    if len(throughputs) < WINDOWS or any(value == 0 for value in throughputs[-WINDOWS:]):
        return False
    most = 1 + percent / 100
    is_even = max(throughputs[-WINDOWS:]) / min(throughputs[-WINDOWS:]) <= most
    return is_even and (not checks_latency or max(latencies[-WINDOWS:]) / max(1, min(latencies[-WINDOWS:])) <= most)


def is_over_limit(latencies_ns: Sequence[float], limit_ms: int) -> bool:
    """Whether one of the last windows reached the latency limit, so that measuring on is of no use."""
    return len(latencies_ns) >= WINDOWS and any(value >= limit_ms * 1e6 for value in latencies_ns[-WINDOWS:])
