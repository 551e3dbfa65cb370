"""How many workers each process gets."""

from __future__ import annotations

from collections.abc import Sequence


def shares_of(worker_count: int, demands: Sequence[float], own_demand: float) -> list[int]:
    """As the demands are to each other; one worker at least stays here, more where there is a demand for them."""
    total = sum(demands) + own_demand
    if total <= 0 or worker_count < 2:
        return [0] * len(demands)
    here = max(1, round(worker_count * own_demand / total))
    lent = worker_count - here
    wanted = sum(demands)
    ideal = [lent * demand / wanted if wanted else 0.0 for demand in demands]
    shares = [int(share) for share in ideal]
    by_rest = sorted(range(len(ideal)), key=lambda at: ideal[at] - shares[at], reverse=True)
    for at in by_rest[: lent - sum(shares)]:
        if demands[at] > 0:
            shares[at] += 1
    return shares
