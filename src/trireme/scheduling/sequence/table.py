"""Which sequences there are, which instance each is bound to, and which of them wait, are silent, or are overdue."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from trireme.core.ports import Instance
from trireme.core.request import InferenceRequest
from trireme.scheduling.sequence.sequence import InstanceSlots, LiveSequence

REMEMBERED_LOSSES = 4096  # of sequences whose clients have not yet heard that they are gone


class SequenceTable:
    """All sequences of one model. `ring_at` is told the moments at which `end_idle` or `take_expired` have work."""

    def __init__(self, capacity: int, max_idle_ns: int, ring_at: Callable[[int], None]) -> None:
        self.by_id: dict[int | str, LiveSequence] = {}
        self.instance_slots: dict[int, InstanceSlots] = {}  # by the instance's id()
        self.backlog: dict[LiveSequence, None] = {}  # those that no instance has room for, first come first served
        self.idle: dict[LiveSequence, None] = {}  # the one that is silent the longest comes first
        self.lost: dict[int | str, None] = {}  # open ones whose instance went, until their clients end or begin them
        self.waiting_count = 0  # of the requests of all sequences
        self.is_stopped = False  # whether silent sequences end at once
        self._capacity = capacity
        self._max_idle_ns = max_idle_ns
        self._ring_at = ring_at
        self._deadlines: list[tuple[int, int, LiveSequence]] = []  # a heap; an entry may be out of date
        self._none_idle: asyncio.Event | None = None  # while somebody waits for it
        self._number = 0  # gives moments and entries an order

    def add(self, sequence: LiveSequence | None, request: InferenceRequest, is_iterative: bool, now_ns: int) -> None:
        """The request waits as the last of the sequence, None for one that it begins."""
        if sequence is None:
            sequence = self.begin(request.correlation_id)
        sequence.waiting.append(request)
        sequence.note_last(is_iterative)
        self.waiting_count += 1
        if sequence.instance_slots is None:
            self.note_deadline(sequence, request)
            self.fill(now_ns)
        elif sequence.running is None:
            self.make_ready(sequence, now_ns)

    def begin(self, correlation_id: int | str) -> LiveSequence:
        """A new sequence, in the backlog until it has a request and `fill` is called."""
        sequence = self.by_id[correlation_id] = LiveSequence(correlation_id)
        self.backlog[sequence] = None
        self.lost.pop(correlation_id, None)
        return sequence

    def add_instance(self, instance: Instance, now_ns: int) -> None:
        if id(instance) not in self.instance_slots:
            self.instance_slots[id(instance)] = InstanceSlots(instance, self._capacity)
            self.fill(now_ns)

    def remove_instance(self, instance: Instance, now_ns: int) -> list[InferenceRequest]:
        """Ends the sequences bound to the instance; returns those of their requests that can not run any more. What
        has not begun there begins elsewhere."""
        slots = self.instance_slots.pop(id(instance), None)
        lost: list[InferenceRequest] = []
        if slots is None:
            return lost
        for sequence in list(slots.sequences):
            lost.extend(sequence.take_until_start())
            self._part(sequence, slots)
            if sequence.is_open and sequence.id not in self.by_id:
                self._note_loss(sequence.id)
        self.waiting_count -= len(lost)
        self.fill(now_ns)
        return lost

    def confine(self) -> Callable[[], None]:
        """From now on new sequences go to the instance that has had none for the longest, until the returned call."""
        all_slots = sorted(self.instance_slots.values(), key=lambda slots: slots.assigned)
        capacities = [(slots, slots.capacity) for slots in all_slots[1:]]
        for slots, _ in capacities:
            slots.capacity = 0

        def release() -> None:
            for slots, capacity in capacities:
                slots.capacity = capacity

        return release

    def take_next(self, sequence: LiveSequence) -> InferenceRequest:
        """Takes out the next request of a sequence that is ready; from now on it is the running one."""
        slots = sequence.instance_slots
        assert slots is not None
        del slots.ready[sequence]
        request = sequence.running = sequence.waiting.popleft()
        self.waiting_count -= 1
        return request

    def put_back(self, sequence: LiveSequence, request: InferenceRequest, was_tried: bool, now_ns: int) -> None:
        """The running request of the sequence waits again, as the first."""
        sequence.running = None
        sequence.is_rerun = was_tried
        sequence.waiting.appendleft(request)
        self.waiting_count += 1
        self.make_ready(sequence, now_ns)

    def settle(self, sequence: LiveSequence, now_ns: int) -> None:
        """The sequence goes on, waits for its client, or is over."""
        if sequence.running is not None:
            return
        if sequence.waiting:
            if sequence.instance_slots is not None:
                self.make_ready(sequence, now_ns)
        elif not sequence.is_open or self.is_stopped:
            self.close(sequence, now_ns)
        else:
            sequence.idle_ns = now_ns
            self.idle[sequence] = None
            self._ring_at(now_ns + self._max_idle_ns)

    def make_ready(self, sequence: LiveSequence, now_ns: int) -> None:
        """The next request of the sequence, which is bound to an instance, can run."""
        slots = sequence.instance_slots
        assert slots is not None
        self._leave_idle(sequence)
        if sequence not in slots.ready:
            sequence.ready_ns = now_ns
            slots.ready[sequence] = None

    def end(self, sequence: LiveSequence, now_ns: int) -> None:
        """The last request of a sequence bound to an instance is over. What waits behind it uses the id again: that is
        another sequence, which waits its turn like any other."""
        slots = sequence.instance_slots
        assert slots is not None
        self._part(sequence, slots)
        self.fill(now_ns)

    def close(self, sequence: LiveSequence, now_ns: int) -> None:
        """Forgets a sequence that has no requests."""
        del self.by_id[sequence.id]
        self._leave_idle(sequence)
        self.backlog.pop(sequence, None)
        if sequence.instance_slots is not None:
            sequence.instance_slots.release(sequence)
            self.fill(now_ns)

    def fill(self, now_ns: int) -> None:
        """Takes sequences out of the backlog while an instance has room."""
        while self.backlog:
            slots = self._roomiest()
            if slots is None:
                return
            sequence = next(iter(self.backlog))
            del self.backlog[sequence]
            sequence.deadline_ns = 0
            slots.take(sequence)
            self._number += 1
            slots.assigned = self._number
            self.make_ready(sequence, now_ns)

    def note_deadline(self, sequence: LiveSequence, request: InferenceRequest) -> None:
        """A sequence must leave the backlog before the timeout of any of its requests has passed."""
        if request.timeout_us <= 0:
            return
        deadline_ns = request.queue_ns + request.timeout_us * 1000
        if not sequence.deadline_ns or deadline_ns < sequence.deadline_ns:
            sequence.deadline_ns = deadline_ns
            self._number += 1
            heapq.heappush(self._deadlines, (deadline_ns, self._number, sequence))
            self._ring_at(deadline_ns)

    def note_deadlines(self, sequence: LiveSequence) -> None:
        """Those of the requests that wait now, and of no others."""
        sequence.deadline_ns = 0
        for request in sequence.waiting:
            self.note_deadline(sequence, request)

    def end_idle(self, now_ns: int) -> list[LiveSequence]:
        """Forgets and returns the sequences that have been silent for too long."""
        ended: list[LiveSequence] = []
        for sequence in self.idle:
            if not self.is_stopped and sequence.idle_ns + self._max_idle_ns > now_ns:
                self._ring_at(sequence.idle_ns + self._max_idle_ns)
                break
            ended.append(sequence)
        for sequence in ended:
            self.close(sequence, now_ns)
        return ended

    def take_cancelled(self, request: InferenceRequest, now_ns: int) -> list[InferenceRequest]:
        """Removes and returns a waiting request with all that wait for the same sequence; none where it does not
        wait."""
        sequence = self.by_id.get(request.correlation_id)
        if sequence is None or request not in sequence.waiting:
            return []
        cancelled = sequence.take_stretch_of(request)
        self.waiting_count -= len(cancelled)
        if sequence.instance_slots is None:
            self.note_deadlines(sequence)
        elif not sequence.waiting:
            sequence.instance_slots.ready.pop(sequence, None)
        self.settle(sequence, now_ns)
        return cancelled

    def take_expired(self, now_ns: int) -> list[InferenceRequest]:
        """Forgets the sequences that were in the backlog for too long; returns their requests. What waits before or
        behind them under the same id stays."""
        expired: list[InferenceRequest] = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline_ns, _, sequence = heapq.heappop(self._deadlines)
            if sequence in self.backlog and sequence.deadline_ns == deadline_ns:
                expired.extend(sequence.take_overdue(now_ns))
                self.note_deadlines(sequence)
                if not sequence.waiting:
                    self.close(sequence, now_ns)
        if self._deadlines:
            self._ring_at(self._deadlines[0][0])
        self.waiting_count -= len(expired)
        return expired

    def _part(self, ended: LiveSequence, slots: InstanceSlots) -> None:
        """Takes the sequence off its instance; what waits behind it is another one under the same id."""
        slots.release(ended)
        self._leave_idle(ended)
        del self.by_id[ended.id]
        if not ended.waiting:
            return
        sequence = self.begin(ended.id)
        sequence.waiting, ended.waiting = ended.waiting, sequence.waiting
        sequence.is_open = ended.is_open
        self.note_deadlines(sequence)

    async def none_idle(self) -> None:
        """Returns when no sequence waits for its client to go on."""
        while self.idle:
            if self._none_idle is None:
                self._none_idle = asyncio.Event()
            await self._none_idle.wait()

    def _leave_idle(self, sequence: LiveSequence) -> None:
        self.idle.pop(sequence, None)
        if self._none_idle is not None and not self.idle:
            event, self._none_idle = self._none_idle, None
            event.set()

    def _note_loss(self, correlation_id: int | str) -> None:
        if len(self.lost) >= REMEMBERED_LOSSES:
            del self.lost[next(iter(self.lost))]
        self.lost[correlation_id] = None

    def _roomiest(self) -> InstanceSlots | None:
        """The instance with the fewest sequences; of several the one that has waited the longest for its next."""
        best: InstanceSlots | None = None
        for slots in self.instance_slots.values():
            if slots.has_room and (best is None or _load(slots) < _load(best)):
                best = slots
        return best


def _load(slots: InstanceSlots) -> tuple[int, int]:
    return len(slots.sequences), slots.assigned
