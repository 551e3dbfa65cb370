"""Loads that an unload, which came after them, brings to an end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trireme.core.errors import CancelledError

Result = TypeVar("Result")


class LoadInterruptedError(CancelledError):
    """The model was unloaded while it was loading."""


class Interruptions:
    """Knows the loads under way by the names of their models."""

    def __init__(self) -> None:
        self._loads: dict[str, set[asyncio.Task[Any]]] = {}
        self._unwanted: Counter[str] = Counter()

    @contextmanager
    def ending(self, names: Collection[str]) -> Iterator[None]:
        """Loads of these models end now, and so do those that begin before the end of the block: who waits for their
        end inside of it came after all of them."""
        self._unwanted.update(names)
        for name in names:
            for load in self._loads.get(name, ()):
                load.cancel()
        try:
            yield
        finally:
            self._unwanted.subtract(names)
            self._unwanted += Counter()  # forgets those that nobody wants to end any more

    async def run(self, name: str, load: Coroutine[Any, Any, Result]) -> Result:
        """Does what belongs to a load; raises LoadInterruptedError where it is not wanted any more."""
        if name in self._unwanted:
            load.close()
            raise _interrupted(name)
        task = asyncio.get_running_loop().create_task(load)
        self._loads.setdefault(name, set()).add(task)
        try:
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if name in self._unwanted and task.cancelled() and (own is None or not own.cancelling()):
                raise _interrupted(name) from None
            raise
        finally:
            self._loads[name].discard(task)
            if not self._loads[name]:
                del self._loads[name]


def _interrupted(name: str) -> LoadInterruptedError:
    return LoadInterruptedError(f"the load was ended because model '{name}' was unloaded meanwhile")
