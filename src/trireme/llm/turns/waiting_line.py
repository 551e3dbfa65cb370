"""Those that wait for their turn: in their order, and by what runs of their requests already."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from trireme.llm.request import Sequence

_MOST_STALE = 64
"""So many entries of what does not wait any more are kept in any case, before they are looked for."""


@dataclass(slots=True)
class _Request:
    """What runs and waits of one request."""

    running: int = 0
    waiting: list[int] = field(default_factory=list)
    """A heap of ids; those that do not wait any more are dropped when they come up."""


class WaitingLine:
    """Turns go alternately to the request of which least runs, and to who waits longest.

    So a request of few sequences does not wait until many of one that came before are written, and one of many gets on
    however many others come. Where each request has one sequence, all go in their order. The more important come first.
    """

    def __init__(self) -> None:
        self.is_turn_of_share = False
        """Whether the next is of the request of which least runs."""
        self._waiting: dict[int, Sequence] = {}
        self._requests: dict[int, _Request] = {}
        self._by_age: list[tuple[int, int]] = []
        """A heap of priorities and ids."""
        self._by_share: list[tuple[int, int, int]] = []
        """The first of each request, behind its priority and how many of the request run. Here too old entries stay."""
        self._several = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        """The next one first."""
        first = self.first()
        if first is not None:
            yield first
        yield from (sequence for sequence in self._waiting.values() if sequence is not first)

    @property
    def has_several(self) -> bool:
        """Whether several sequences of one request run."""
        return self._several > 0

    def add(self, sequence: Sequence) -> None:
        """Lets one wait, in the place that its id gives it."""
        number = sequence.sequence_id
        self._waiting[number] = sequence
        heapq.heappush(self._by_age, (sequence.priority, number))
        request = self._requests.setdefault(_request_of(sequence), _Request())
        heapq.heappush(request.waiting, number)
        self._note_share(request)
        self._sweep()

    def remove(self, sequence: Sequence) -> None:
        """Takes out one that waits."""
        del self._waiting[sequence.sequence_id]
        self._note_change(sequence, 0)

    def note_start(self, sequence: Sequence) -> None:
        """Counts one that runs from now on."""
        self._note_change(sequence, 1)

    def note_end(self, sequence: Sequence) -> None:
        """The same sequence does not run any more."""
        self._note_change(sequence, -1)

    def running_of_request(self, sequence: Sequence) -> int:
        """How many sequences of the same request run."""
        request = self._requests.get(_request_of(sequence))
        return request.running if request is not None else 0

    def first(self) -> Sequence | None:
        """Whose turn is next."""
        return self.first_by_share() if self.is_turn_of_share else self._first_by_age()

    def _first_by_age(self) -> Sequence | None:
        heap = self._by_age
        while heap and heap[0][1] not in self._waiting:
            heapq.heappop(heap)
        return self._waiting[heap[0][1]] if heap else None

    def first_by_share(self) -> Sequence | None:
        """The first of the request of which least runs."""
        heap = self._by_share
        while heap:
            _, running, number = heap[0]
            sequence = self._waiting.get(number)
            if sequence is not None and self._requests[_request_of(sequence)].running == running:
                return sequence
            heapq.heappop(heap)
        return None

    def _note_change(self, sequence: Sequence, more_running: int) -> None:
        key = _request_of(sequence)
        request = self._requests.setdefault(key, _Request())
        self._several -= request.running > 1
        request.running += more_running
        self._several += request.running > 1
        self._note_share(request)
        if not request.running and not request.waiting:
            del self._requests[key]
        self._sweep()

    def _note_share(self, request: _Request) -> None:
        waiting = request.waiting
        while waiting and waiting[0] not in self._waiting:
            heapq.heappop(waiting)
        if waiting:
            first = self._waiting[waiting[0]]
            heapq.heappush(self._by_share, (first.priority, request.running, first.sequence_id))

    def _sweep(self) -> None:
        """Drops old entries once most are."""
        most = 2 * len(self._waiting) + _MOST_STALE
        if len(self._by_age) > most:
            self._by_age = [(one.priority, number) for number, one in self._waiting.items()]
            heapq.heapify(self._by_age)
        if len(self._by_share) > most:
            self._by_share = []
            for request in self._requests.values():
                self._note_share(request)


def _request_of(sequence: Sequence) -> int:
    return sequence.sequence_id if sequence.request_id is None else sequence.request_id
