"""Which sequences there are, which instance each is bound to, and which of them wait, are silent, or are overdue."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.core.ports import Instance
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.scheduling.sequence.sequence import InstanceSlots, LiveSequence

log = logging.getLogger(__name__)

REMEMBERED_LOSSES = 4096  # of sequences whose clients have not yet heard that they are gone


class SequenceTable:
    """All sequences of one model. `ring_at` is told the moments at which `end_idle` or `take_expired` have work."""

    def __init__(self, capacity: int, max_idle_ns: int, ring_at: Callable[[int], None]) -> None:
        self.by_id: dict[int | str, LiveSequence] = {}
        self.instance_slots: dict[int, InstanceSlots] = {}  # by the instance's id()
        self.backlog: dict[LiveSequence, None] = {}  # those that no instance has room for, first come first served
        self.idle: dict[LiveSequence, None] = {}  # the one that is silent the longest comes first
        self.lost: dict[int | str, None] = {}  # open ones whose instance went, until their clients end or begin them
        self.is_stopped = False  # whether silent sequences end at once
        self._capacity = capacity
        self._max_idle_ns = max_idle_ns
        self._ring_at = ring_at
        self._deadlines: list[tuple[int, int, LiveSequence]] = []  # a heap; an entry may be out of date
        self._number = 0  # gives moments and entries an order

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
        self.fill(now_ns)
        return lost

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
        self.idle.pop(sequence, None)
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
        self.idle.pop(sequence, None)
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
        return expired

    def _part(self, ended: LiveSequence, slots: InstanceSlots) -> None:
        """Takes the sequence off its instance; what waits behind it is another one under the same id."""
        slots.release(ended)
        self.idle.pop(ended, None)
        del self.by_id[ended.id]
        if not ended.waiting:
            return
        sequence = self.begin(ended.id)
        sequence.waiting, ended.waiting = ended.waiting, sequence.waiting
        sequence.is_open = ended.is_open
        self.note_deadlines(sequence)

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


class SequenceAdmission:
    """Which sequence a request belongs to, by its correlation id and its flags."""

    def __init__(self, name: str, batching: SequenceBatchingConfig, table: SequenceTable, *, has_warmup: bool) -> None:
        self._name = name
        self._is_iterative = batching.is_iterative
        self._has_text_ids = batching.has_text_ids
        self._table = table
        self._has_warmup = has_warmup
        self._last_id = 0  # of those that the server gives

    def admit(self, request: InferenceRequest) -> LiveSequence | None:
        """The sequence that the request continues, or begins anew under the same id; None for a new one. Raises
        InvalidArgumentError where it belongs to none, UnavailableError where what it continues was lost."""
        if request.batch_size > 1:
            raise InvalidArgumentError(
                f"inference request to model '{self._name}' must specify batch-size 1 due to requirements of sequence "
                "batcher"
            )
        if self._is_iterative or not request.correlation_id:
            self._assign_id(request)
        sequence = self._table.by_id.get(request.correlation_id)
        if not request.flags & SEQUENCE_START:
            if sequence is None or not sequence.is_open:
                if request.correlation_id in self._table.lost:
                    if request.flags & SEQUENCE_END:
                        del self._table.lost[request.correlation_id]
                    raise loss_of(request, self._name)
                raise InvalidArgumentError(
                    f"inference request for sequence {request.correlation_id} to model '{self._name}' must specify the "
                    "START flag on the first request of the sequence"
                )
        elif sequence is not None and sequence.is_open:
            log.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence "
                "start. Previous sequence will be terminated early.",
                request.correlation_id,
                self._name,
            )
        return sequence

    def _assign_id(self, request: InferenceRequest) -> None:
        """Iterative requests are sequences of their own; so are those that warm the model up, which come before
        any client's and were not timed on their way here."""
        if self._is_iterative:
            request.flags = SEQUENCE_START
            if request.correlation_id:
                return
        elif self._has_warmup and not request.arrival_ns:
            request.flags = SEQUENCE_START | SEQUENCE_END
        else:
            raise InvalidArgumentError(
                f"inference request to model '{self._name}' must specify a non-zero or non-empty correlation ID"
            )
        while not request.correlation_id or request.correlation_id in self._table.by_id:
            self._last_id += 1
            request.correlation_id = str(self._last_id) if self._has_text_ids else self._last_id


def loss_of(request: InferenceRequest, model: str) -> UnavailableError:
    """What a request is told whose sequence was lost with its instance."""
    return UnavailableError(
        f"sequence {request.correlation_id} of model '{model}' ended early because its model instance is gone; "
        "begin it again with the START flag"
    )


def _load(slots: InstanceSlots) -> tuple[int, int]:
    return len(slots.sequences), slots.assigned
