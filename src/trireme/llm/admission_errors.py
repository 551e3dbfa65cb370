"""Why a request is not begun: the engine takes no more, has too much to do, or nobody waits any more for what is being
made for it, a grammar that is checked, an adapter that waits for its place."""

from __future__ import annotations

from collections.abc import Callable

IsWanted = Callable[[], bool]
"""Asked now and then, from any thread, by who makes something that may take long."""


class EngineClosedError(RuntimeError):
    """The engine takes no more requests; the text says why."""


class EngineBusyError(RuntimeError):
    """The engine has as much to do as it may; the text names the limit."""


class NotWantedError(Exception):
    """Nobody waits any more for what was to be made, and it is not made."""


def always() -> bool:
    """For who waits whatever happens."""
    return True
