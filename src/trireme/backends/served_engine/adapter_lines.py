"""The lines in which requests wait for adapters, whichever backend they come to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trireme.backends.served_engine.waiting_requests import Prepared, Waiter, WaitingRequests
from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.adapters.store import AdapterStore
from trireme.llm.admission_errors import IsWanted

BeginAdapted = Callable[[PlacedAdapter], None]
"""Begins a request with its adapter, and gives that back at the end."""


class AdapterLines:
    """Of one engine; may be used from any thread."""

    def __init__(self, store: AdapterStore, max_waiting: int) -> None:
        """`max_waiting` requests may wait in each; 0: as many as come."""
        self._store = store
        self._loads = WaitingRequests(max_waiting, "adapters to be read", 1, store.look_again)
        self._searches = WaitingRequests(max_waiting, "adapters to be looked for", 1, store.look_again)
        """What nobody has does not wait until there is a place for what somebody has."""

    def add(self, name: str, waiter: Waiter, deadline: float | None, begin: BeginAdapted) -> None:
        """Begins a request with the adapter, now or once it is there. Raises EngineBusyError where too many wait."""
        adapter = self._store.take_if_kept(name)
        if adapter is not None:
            begin(adapter)
            return

        def make(is_wanted: IsWanted) -> Prepared:
            taken = self._store.take(name, is_wanted)
            return Prepared(partial(begin, taken), partial(self._store.give_back, taken))

        line = self._loads if self._store.has(name) else self._searches
        line.add(waiter, make, deadline)

    def end_overdue(self) -> None:
        """Answers those whose time is over or that nobody waits for; to be called now and then, from another thread."""
        for line in (self._loads, self._searches):
            line.end_overdue()

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the store is closed by then."""
        for line in (self._loads, self._searches):
            line.stop()
