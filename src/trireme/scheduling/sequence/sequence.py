"""One sequence of requests under a correlation id, and the sequences that one instance works on."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque

from trireme.core.ports import Instance
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.core.tensor import Tensor


class LiveSequence:
    """The requests of one correlation id, in order. A client may use the id again before the sequence it ended is
    through, so what waits may belong to several sequences one after another; each begins with a START."""

    __slots__ = (
        "deadline_ns",
        "id",
        "idle_ns",
        "instance_slots",
        "is_open",
        "is_rerun",
        "ready_ns",
        "requested",
        "running",
        "slot",
        "states",
        "waiting",
    )

    def __init__(self, correlation_id: int | str) -> None:
        self.id = correlation_id
        self.waiting: deque[InferenceRequest] = deque()
        self.running: InferenceRequest | None = None
        self.is_open = False  # whether a request without START may follow those that are here
        self.is_rerun = False  # whether the first that waits has been executed before
        self.instance_slots: InstanceSlots | None = None  # None in the backlog
        self.slot = 0  # the place in its instance's batches; the direct strategy's
        self.states: dict[str, Tensor] = {}  # by the name of the input
        self.requested: tuple[str, ...] = ()  # the outputs that the running request's client asked for
        self.ready_ns = 0  # when the first that waits could have run
        self.idle_ns = 0  # since when there is nothing to do
        self.deadline_ns = 0  # when it must have left the backlog; 0 is never

    def count_behind_end(self) -> int:
        """How many of those that wait come after the END of the sequence that has the instance: they wait for their
        turn like those of the backlog."""
        if self.running is not None and self.running.flags & SEQUENCE_END:
            return len(self.waiting)
        for place, request in enumerate(self.waiting):
            if request.flags & SEQUENCE_END:
                return len(self.waiting) - place - 1
        return 0

    def stretch_of(self, request: InferenceRequest) -> tuple[int, int]:
        """The places among those that wait that belong to the same sequence as this one, which must be waiting."""
        place = self.waiting.index(request)
        first, end = place, place + 1
        while first > 0 and not self.waiting[first].flags & SEQUENCE_START:
            first -= 1
        while end < len(self.waiting) and not self.waiting[end].flags & SEQUENCE_START:
            end += 1
        return first, end

    def take_stretch_of(self, request: InferenceRequest) -> list[InferenceRequest]:
        """Removes all that wait for the same sequence as this one, which must be waiting."""
        first, end = self.stretch_of(request)
        waiting = list(self.waiting)
        self.waiting = deque(waiting[:first] + waiting[end:])
        self.is_rerun = self.is_rerun and first > 0
        if end == len(waiting):
            self.is_open = False
        return waiting[first:end]

    def take_until_start(self) -> list[InferenceRequest]:
        """Removes those that wait and continue what has begun; what begins anew stays."""
        taken: list[InferenceRequest] = []
        while self.waiting and (self.is_rerun or not self.waiting[0].flags & SEQUENCE_START):
            taken.append(self.waiting.popleft())
            self.is_rerun = False
        return taken

    def take_overdue(self, now_ns: int) -> list[InferenceRequest]:
        """Removes the sequences among what waits of which a request has waited for longer than its timeout."""
        waiting, first = list(self.waiting), 0
        kept: deque[InferenceRequest] = deque()
        overdue: list[InferenceRequest] = []
        while first < len(waiting):
            _, end = self.stretch_of(waiting[first])
            stretch = waiting[first:end]
            if any(0 < request.timeout_us * 1000 <= now_ns - request.queue_ns for request in stretch):
                overdue.extend(stretch)
                self.is_open = self.is_open and end < len(waiting)
            else:
                kept.extend(stretch)
            first = end
        self.waiting = kept
        return overdue

    def note_last(self, is_iterative: bool) -> None:
        """Whether it is open follows from the last request that waits; there must be one."""
        self.is_open = not is_iterative and not self.waiting[len(self.waiting) - 1].flags & SEQUENCE_END


class InstanceSlots:
    """One instance with the sequences that are bound to it."""

    __slots__ = ("_emptied", "_free_slots", "_next_slot", "assigned", "capacity", "instance", "ready", "sequences")

    def __init__(self, instance: Instance, capacity: int) -> None:
        self.instance = instance
        self.capacity = capacity
        self.sequences: dict[LiveSequence, None] = {}
        self.ready: dict[LiveSequence, None] = {}  # those whose next request could run, in the order they became so
        self.assigned = 0  # when it last got a sequence, on the scheduler's count
        self._free_slots: list[int] = []  # a heap of those below the next
        self._next_slot = 0
        self._emptied: asyncio.Event | None = None  # set when the last sequence goes

    def take(self, sequence: LiveSequence) -> None:
        """Gives the sequence the first free slot; there must be room."""
        if self._free_slots:
            sequence.slot = heapq.heappop(self._free_slots)
        else:
            sequence.slot = self._next_slot
            self._next_slot += 1
        self.sequences[sequence] = None
        sequence.instance_slots = self

    def release(self, sequence: LiveSequence) -> None:
        """The slot is free again."""
        heapq.heappush(self._free_slots, sequence.slot)
        del self.sequences[sequence]
        self.ready.pop(sequence, None)
        sequence.instance_slots = None
        if self._emptied is not None and not self.sequences:
            self._emptied.set()

    async def drain(self) -> None:
        """Takes no sequence any more; returns when those that it has are over."""
        self.capacity = 0
        if self.sequences:
            if self._emptied is None:
                self._emptied = asyncio.Event()
            await self._emptied.wait()

    @property
    def has_room(self) -> bool:
        return len(self.sequences) < self.capacity
