"""Workers of one model in one front-end process, from the first that it gets to the last that it gives back."""

from __future__ import annotations

from typing import Protocol

from trireme.app.leases.shared_counts import SharedCounts
from trireme.backends.python.host.supervisor import Supervisor


class LeaseRecaller(Protocol):
    """What is needed of a front-end process."""

    def recall(self, lease: int) -> None:
        """Asks for the worker."""


class LeaseTerm:
    """Behind the last worker that was handed over none follows, because the process begins to count anew then."""

    def __init__(self, number: int, counts: SharedCounts) -> None:
        self.number = number
        self.counts = counts
        self.leases: dict[int, Supervisor] = {}  # by number, those that were not recalled
        self.out_count = 0  # workers that are not back
        self._handed_over: set[int] = set()  # of the leases
        self._taken_count = 0

    def note_handed_over(self, number: int) -> None:
        """The process has the worker."""
        self._handed_over.add(number)

    def beyond(self, share: int) -> list[int]:
        """The leases that are too many, those before all that are not handed over yet."""
        return sorted(self.leases, key=lambda number: number not in self._handed_over)[share:]

    def take_demand(self) -> int:
        """Requests that it has answered since the last time."""
        before, self._taken_count = self._taken_count, self.counts.request_count
        return self._taken_count - before

    def recall(self, process: LeaseRecaller, number: int) -> None:
        """Asks for the worker; one that was not handed over yet will not be."""
        if self.leases.pop(number, None) is None:
            return
        if number in self._handed_over:
            self._handed_over.remove(number)
            process.recall(number)
            if not self._handed_over:
                self.leases.clear()
        if not self.leases:
            self.counts.shut()
