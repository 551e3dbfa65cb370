"""Whether anybody still waits for what is being made: a grammar that is tried, an adapter that waits for its place."""

from __future__ import annotations

from collections.abc import Callable

IsWanted = Callable[[], bool]
"""Asked now and then, from any thread, by who makes something that may take long."""


class NotWantedError(Exception):
    """Nobody waits any more for what was to be made, and it is not made."""


def always() -> bool:
    """For who waits whatever happens."""
    return True
