"""Keeps operations on related models apart, and lets all others run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager


class RelatedNames:
    """Names that operations hold; an operation takes all of its names at once, so none waits for another's rest."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._waiting: list[tuple[frozenset[str], asyncio.Future[None]]] = []

    def are_free(self, names: Set[str]) -> bool:
        """Whether nobody holds, or waits for, any of the names."""
        return not any(names & wanted for wanted in (self._held, *(wanted for wanted, _ in self._waiting)))

    @asynccontextmanager
    async def hold(self, names: Set[str]) -> AsyncIterator[None]:
        """Waits until nobody, and nobody who asked before, holds any of the names."""
        wanted = frozenset(names)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            self._leave(wanted, turn)
            raise
        try:
            yield
        finally:
            self._leave(wanted, turn)

    def _leave(self, wanted: frozenset[str], turn: asyncio.Future[None]) -> None:
        if (wanted, turn) in self._waiting:
            self._waiting.remove((wanted, turn))
        else:
            self._held -= wanted
        self._admit()

    def _admit(self) -> None:
        blocked = set(self._held)
        still_waiting = []
        for wanted, turn in self._waiting:
            if wanted & blocked:
                still_waiting.append((wanted, turn))
            elif not turn.done():
                self._held |= wanted
                turn.set_result(None)
            blocked |= wanted
        self._waiting = still_waiting
