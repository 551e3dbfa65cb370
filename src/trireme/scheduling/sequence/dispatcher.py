"""Which instances start batches of their sequences, and when."""

from __future__ import annotations

import os

from trireme.core.batch import Batch
from trireme.core.clock import Clock
from trireme.core.ports import Instance
from trireme.scheduling.instance_runner import InstanceRunner
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.sequence.running_sequences import RunningSequences
from trireme.scheduling.sequence.sequence import InstanceSlots, LiveSequence
from trireme.scheduling.sequence.strategies import SequenceStrategy
from trireme.scheduling.sequence.table import SequenceTable


class SequenceDispatcher:
    """Starts, on the instances that are free, what the strategy chooses among the sequences that are bound to them."""

    def __init__(
        self,
        runner: InstanceRunner,
        table: SequenceTable,
        strategy: SequenceStrategy,
        running_sequences: RunningSequences,
        clock: Clock,
    ) -> None:
        self.is_handing_over = False  # whether an instance is being given a batch right now
        self._runner = runner
        self._table = table
        self._strategy = strategy
        self._running_sequences = running_sequences
        self._clock = clock
        self._is_dispatching = False
        self._is_held = _held("") + _held("BACKLOG_") > 0

    def dispatch_now(self) -> None:
        self.dispatch(self._clock())

    def dispatch(self, now_ns: int) -> None:
        """Starts batches while there are some to start; not entered again from inside."""
        if self._is_dispatching or (self._is_held and self._stay_held()):
            return
        self._is_dispatching = True
        try:
            while self._start_some(now_ns):
                now_ns = self._clock()
        finally:
            self._is_dispatching = False

    def has_ready(self) -> bool:
        """Whether any instance has a sequence with something to run."""
        return any(slots.ready for slots in self._table.instance_slots.values())

    def has_ready_on(self, instance: Instance) -> bool:
        """Whether the instance would start something now; a batch that waits to grow claims no resource."""
        slots = self._table.instance_slots.get(id(instance))
        return slots is not None and bool(slots.ready) and bool(self._choose(slots, self._clock()))

    def _start_some(self, now_ns: int) -> bool:
        runner = self._runner
        if runner.gate is not None:
            return self._start_limited(runner.gate)
        has_started = False
        for instance in list(runner.free):
            slots = self._table.instance_slots.get(id(instance))
            if slots is None or not slots.ready or instance not in runner.free:
                continue
            chosen = self._choose(slots, now_ns)
            if chosen:
                runner.free.remove(instance)
                self._start(instance, chosen, now_ns)
                has_started = True
        return has_started

    def _start_limited(self, gate: InstanceGate) -> bool:
        """Starts a batch on the instance whose turn it is, and which therefore has one; false where it is none's."""
        instance = gate.take()
        if instance is None:
            return False
        now_ns = self._clock()
        self._start(instance, self._choose(self._table.instance_slots[id(instance)], now_ns), now_ns)
        return True

    def _start(self, instance: Instance, chosen: list[LiveSequence], now_ns: int) -> None:
        requests = self._strategy.lay_out(chosen, self._running_sequences.begin(chosen))
        self.is_handing_over = True
        self._runner.start_on(instance, Batch(requests, len(requests), now_ns))
        self.is_handing_over = False

    def _choose(self, slots: InstanceSlots, now_ns: int) -> list[LiveSequence]:
        return self._strategy.choose(slots, now_ns, self._table.is_stopped)

    def _stay_held(self) -> bool:
        """Whether too few requests wait yet, with an instance or in the backlog, for the first to be run."""
        table = self._table
        behind = sum(len(sequence.waiting) for sequence in table.backlog)
        all_slots = table.instance_slots.values()
        if not any(slots.has_room for slots in all_slots):
            behind += sum(sequence.count_behind_end() for slots in all_slots for sequence in slots.sequences)
        has_enough = table.waiting_count - behind >= _held("") and behind >= _held("BACKLOG_")
        self._is_held = not table.is_stopped and not has_enough
        return self._is_held


def _held(kind: str) -> int:
    """How many requests must wait before the first is run (`TRITONSERVER_[BACKLOG_]DELAY_SCHEDULER`, for tests)."""
    value = os.environ.get(f"TRITONSERVER_{kind}DELAY_SCHEDULER", "")
    return int(value) if value.isdecimal() else 0
