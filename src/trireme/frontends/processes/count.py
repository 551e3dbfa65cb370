"""How many front-end processes a server has where that is left to it."""

from __future__ import annotations

from typing import Final

_LEAST_CORES: Final = 8
"""With fewer, the models and their clients have use for all of them."""
_MOST: Final = 4
"""More do not make the one process faster that is behind them."""


def front_end_count(wished: int | None, core_count: int, instance_count: int) -> int:
    """The number that was wished for; where none was, one for every two cores that the server process and the instances
    of the model with most of them leave. 1 means that the server process itself holds the connections."""
    if wished is not None:
        return wished
    if core_count < _LEAST_CORES:
        return 1
    return max(1, min(_MOST, (core_count - 1 - instance_count) // 2))
