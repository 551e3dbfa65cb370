"""How many front-end processes a server has where that is left to it."""

from __future__ import annotations

from typing import Final

_LEAST_CORES: Final = 8
"""With fewer, the models and their clients have use for all of them."""
_MOST: Final = 4
"""More do not make the one process faster that is behind them."""
_MOST_WITH_LEASES: Final = 8
"""More than that have not been measured."""


def front_end_count(core_count: int, instance_count: int, leasable_count: int | None) -> int:
    """One for every two cores that the instances of the model with most of them leave. 1 means that the server process
    itself holds the connections.

    The server process takes a core as well, unless it leases workers, of which `leasable_count` is the most that one
    model has (None: it leases none); then each front-end process is to get one, and one stays."""
    if not may_have_front_ends(None, core_count):
        return 1
    if leasable_count is not None:
        count = min(_MOST_WITH_LEASES, leasable_count - 1, (core_count - instance_count) // 2)
    else:
        count = min(_MOST, (core_count - 1 - instance_count) // 2)
    return max(1, count)


def may_have_front_ends(asked_for: int | None, core_count: int) -> bool:
    """Whether there can be more than one, whatever the models are."""
    return core_count >= _LEAST_CORES if asked_for is None else asked_for > 1
