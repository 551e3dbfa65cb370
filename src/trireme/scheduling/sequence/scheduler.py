"""The sequence batcher: requests with one correlation id run one after another on one instance."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trireme.config.model_config import ModelConfig
from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import CancelledError, ServingError, UnavailableError
from trireme.core.ports import Instance
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.stats import CANCELED, OTHER, REJECTED, ModelStats
from trireme.scheduling.dynamic_batch import Defer
from trireme.scheduling.instance_runner import InstanceRunner
from trireme.scheduling.queue import RequestQueue
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.sequence.inputs import SequenceInputs
from trireme.scheduling.sequence.sequence import InstanceSlots, LiveSequence
from trireme.scheduling.sequence.table import SequenceAdmission, SequenceTable, loss_of
from trireme.scheduling.timer import Alarm, CallLater

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """What every sequence scheduler works with, whatever its strategy; tests bring their own."""

    clock: Clock = monotonic_ns
    call_later: CallLater | None = None
    defer: Defer | None = None
    folder: Path | None = None
    """The model's, where sequences begin with a state from a file."""


class SequenceScheduler(InstanceRunner):
    """Implements `Scheduler`. Owns all sequences; a strategy derived from it says which of an instance's run next.

    A sequence is bound to an instance from its first request to its last, and at most one of its requests runs at a
    time. Where every instance is full, new sequences wait in the backlog. A sequence ends with its last request, when
    it is idle for too long, when one of its waiting requests is cancelled, and when its instance is lost.
    """

    def __init__(
        self,
        config: ModelConfig,
        batching: SequenceBatchingConfig,
        stats: ModelStats,
        context: SchedulerContext,
        *,
        capacity: int,
        order: ResponseOrder | None,
    ) -> None:
        super().__init__(stats, context.clock, RequestQueue(), order)
        self._inputs = SequenceInputs(config, batching, context.folder)
        self._is_iterative = batching.is_iterative
        self._defer = context.defer
        self._alarm = Alarm(self._wake, context.clock, context.call_later)
        self._on_cancel = self._cancel
        self._is_dispatching = False
        self._is_handing_over = False
        self._is_held = _held("") + _held("BACKLOG_") > 0
        self._table = SequenceTable(capacity, batching.max_idle_us * 1000, self._alarm.set)
        self._admission = SequenceAdmission(stats.name, batching, self._table, has_warmup=context.defer is not None)
        self._by_request: dict[InferenceRequest, LiveSequence] = {}  # of the running requests
        self._put_off: set[InferenceRequest] = set()
        self._waiting_count = 0
        stats.pending_count = lambda: self._waiting_count

    # What a strategy adds.

    @abstractmethod
    def _choose(self, slots: InstanceSlots, now_ns: int) -> list[LiveSequence]:
        """Which sequences of the instance run their next request now, together; none where it is better to wait."""

    def _lay_out(self, chosen: list[LiveSequence], requests: list[InferenceRequest]) -> list[InferenceRequest]:
        """The batch for the next requests of the chosen sequences."""
        return requests

    # What the server calls.

    def enqueue(self, request: InferenceRequest) -> None:
        """Takes the request into its sequence, or refuses one that belongs to none."""
        sequence = self._admission.admit(request)
        if self._is_stopped and request.flags & SEQUENCE_START:
            self._refuse_if_stopped(request)
        now_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = now_ns
        self._inflight_count += 1
        self._waiting_count += 1
        request.on_cancel = self._on_cancel
        table = self._table
        if sequence is None:
            sequence = table.begin(request.correlation_id)
        sequence.waiting.append(request)
        sequence.note_last(self._is_iterative)
        if sequence.instance_slots is None:
            table.note_deadline(sequence, request)
            table.fill(now_ns)
        elif sequence.running is None:
            table.make_ready(sequence, now_ns)
        if request.is_cancelled:
            self._cancel(request)
        elif self._defer is None:
            self._dispatch(now_ns)
        else:
            self._defer(self._dispatch_deferred)

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""
        return self._waiting_count

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered, and sequences that may go on: a server that ends waits for both."""
        return self._inflight_count + len(self._table.idle)

    async def stop(self) -> None:
        """Begins no sequence any more and returns when every request is answered. Sequences that are silent end now:
        a model that stops is out of the reach of their clients."""
        self._is_stopped = self._table.is_stopped = True
        self._table.end_idle(self._clock())
        await super().stop()

    # What instances call.

    def attach(self, instance: Instance) -> None:
        """From now on the instance takes sequences."""
        self._table.add_instance(instance, self._clock())
        super().attach(instance)

    async def drain(self, instance: Instance) -> None:
        """The instance begins no sequence any more; returns when those that it has ended, or were idle for too long."""
        slots = self._table.instance_slots.get(id(instance))
        if slots is None:
            return
        slots.capacity = 0
        if slots.sequences:
            emptied = asyncio.Event()
            slots.on_empty = emptied.set
            await emptied.wait()

    def detach(self, instance: Instance) -> None:
        """The instance takes nothing any more, and its sequences end: what the model remembered of them is gone."""
        super().detach(instance)
        now_ns = self._clock()
        for request in self._table.remove_instance(instance, now_ns):
            self._end_waiting(request, loss_of(request, self._stats.name), OTHER)
        self._dispatch(now_ns)

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Passes one response of a stream on to the client."""
        if not request.correlation_id:
            return  # a null request's
        super().respond(request, response)
        if response.is_final:
            self._dispatch(self._clock())

    def finish(
        self, instance: Instance, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming
    ) -> None:
        """Counts and answers the batch, then starts what has become possible."""
        requests = batch.requests
        real = [index for index, request in enumerate(requests) if request.correlation_id]
        if len(real) < len(requests):  # null requests are not answered, and counted in the size of the batch alone
            batch.requests = [requests[index] for index in real]
            responses = [responses[index] for index in real if index < len(responses)]
        if self._gate is None:
            super().finish(instance, batch, responses, timing)
        else:
            with self._gate.settling():
                super().finish(instance, batch, responses, timing)
        self._dispatch(self._clock())

    def run_together(self, requests: list[InferenceRequest]) -> bool:
        """Never past the table of sequences."""
        return False

    def confine(self) -> Callable[[], None]:
        all_slots = sorted(self._table.instance_slots.values(), key=lambda slots: slots.assigned)
        capacities = [(slots, slots.capacity) for slots in all_slots[1:]]
        for slots, _ in capacities:
            slots.capacity = 0

        def release() -> None:
            for slots, capacity in capacities:
                slots.capacity = capacity

        return release

    def reschedule(self, request: InferenceRequest) -> None:
        """The request will wait again once `finish` of its batch has come with None in its place."""
        if not request.correlation_id:
            return
        if self._is_handing_over:
            self._put_off.add(request)  # the instance did not even try it
        super().reschedule(request)

    def limit(self, gate: InstanceGate) -> None:
        """From now on every execution passes the gate; which instance it may be is a matter of the sequences."""
        self._gate = gate
        gate.open(self._has_ready, self._dispatch_deferred, self._has_ready_on)

    # Execution.

    def _dispatch_deferred(self) -> None:
        self._dispatch(self._clock())

    def _dispatch(self, now_ns: int) -> None:
        """Starts batches while there are some to start; not entered again from inside."""
        if self._is_dispatching or (self._is_held and self._stay_held()):
            return
        self._is_dispatching = True
        try:
            while self._start_some(now_ns):
                now_ns = self._clock()
        finally:
            self._is_dispatching = False

    def _stay_held(self) -> bool:
        """Whether too few requests wait yet, with an instance or in the backlog, for the first to be run."""
        behind = sum(len(sequence.waiting) for sequence in self._table.backlog)
        has_enough = self._waiting_count - behind >= _held("") and behind >= _held("BACKLOG_")
        self._is_held = not self._is_stopped and not has_enough
        return self._is_held

    def _has_ready(self) -> bool:
        return any(slots.ready for slots in self._table.instance_slots.values())

    def _has_ready_on(self, instance: Instance) -> bool:
        """Whether the instance would start something now; a batch that waits to grow claims no resource."""
        slots = self._table.instance_slots.get(id(instance))
        return slots is not None and bool(slots.ready) and bool(self._choose(slots, self._clock()))

    def _start_limited(self, gate: InstanceGate) -> bool:
        """Starts a batch on the instance whose turn it is, and which therefore has one; false where it is none's."""
        instance = gate.take()
        if instance is None:
            return False
        now_ns = self._clock()
        slots = self._table.instance_slots[id(instance)]
        self._start_on(slots, self._choose(slots, now_ns), now_ns)
        return True

    def _start_some(self, now_ns: int) -> bool:
        if self._gate is not None:
            return self._start_limited(self._gate)
        has_started = False
        for instance in list(self._free):
            slots = self._table.instance_slots.get(id(instance))
            if slots is None or not slots.ready or instance not in self._free:
                continue
            chosen = self._choose(slots, now_ns)
            if chosen:
                self._start_on(slots, chosen, now_ns)
                has_started = True
        return has_started

    def _start_on(self, slots: InstanceSlots, chosen: list[LiveSequence], now_ns: int) -> None:
        requests: list[InferenceRequest] = []
        for sequence in chosen:
            request = sequence.waiting.popleft()
            del slots.ready[sequence]
            sequence.running = request
            self._by_request[request] = sequence
            if self._order is not None and not sequence.is_rerun:
                self._order.join(request)
            sequence.is_rerun = False
            self._inputs.add_controls(sequence, request)
            requests.append(request)
        self._waiting_count -= len(requests)
        instance = slots.instance
        if self._gate is None:
            self._free.remove(instance)
        requests = self._lay_out(chosen, requests)
        batch = Batch(requests, len(requests), now_ns)
        self._is_handing_over = True
        self._run_on(instance, batch)
        self._is_handing_over = False

    def _answer(self, request: InferenceRequest, response: InferenceResponse) -> None:
        sequence = self._by_request.get(request)
        if sequence is not None:
            self._inputs.take_states(sequence, request, response)
            if response.is_final:
                del self._by_request[request]
                self._advance(sequence, request.flags & SEQUENCE_END != 0)
        super()._answer(request, response)

    def _requeue(self, request: InferenceRequest) -> None:
        """The request runs again, ahead of those that follow it in its sequence."""
        sequence = self._by_request.pop(request)
        self._inputs.restore(sequence, request)
        was_tried = request not in self._put_off
        self._put_off.discard(request)
        self._waiting_count += 1
        if request.is_cancelled or sequence.instance_slots is None:
            self._advance(sequence, request.flags & SEQUENCE_END != 0)
            if request.is_cancelled:
                self._end_waiting(request, CancelledError(""), CANCELED)
            else:
                self._end_waiting(request, loss_of(request, self._stats.name), OTHER)
            return
        if not was_tried:
            if self._order is not None:
                self._order.leave(request)
        elif self._is_iterative:
            request.flags = 0
        else:
            request.flags &= ~SEQUENCE_START  # its end is still to come
        now_ns = request.queue_ns = self._clock()
        sequence.running = None
        sequence.is_rerun = was_tried
        sequence.waiting.appendleft(request)
        self._table.make_ready(sequence, now_ns)

    def _advance(self, sequence: LiveSequence, is_end: bool) -> None:
        """A request of the sequence is over."""
        sequence.running = None
        if sequence.instance_slots is None:
            return  # lost while the request ran
        if is_end or self._is_iterative:
            self._table.end(sequence, self._clock())
        else:
            self._table.settle(sequence, self._clock())

    # Ends before their time.

    def _cancel(self, request: InferenceRequest) -> None:
        if request in self._by_request:
            self._cancel_running(request)
            return
        sequence = self._table.by_id.get(request.correlation_id)
        if sequence is None or request not in sequence.waiting:
            return
        first, end = sequence.stretch_of(request)
        waiting = list(sequence.waiting)
        sequence.waiting.clear()
        sequence.waiting.extend(waiting[:first] + waiting[end:])
        sequence.is_rerun = sequence.is_rerun and first > 0
        if end == len(waiting):
            sequence.is_open = False
        if sequence.instance_slots is None:
            self._table.note_deadlines(sequence)
        elif not sequence.waiting:
            sequence.instance_slots.ready.pop(sequence, None)
        now_ns = self._clock()
        self._table.settle(sequence, now_ns)
        for cancelled in waiting[first:end]:
            self._end_waiting(cancelled, CancelledError(""), CANCELED)
        self._dispatch(now_ns)

    def _wake(self) -> None:
        """Sequences may be silent for too long, or in the backlog, or a batch has waited long enough to grow."""
        now_ns = self._clock()
        for sequence in self._table.end_idle(now_ns):
            log.debug("sequence %s of model '%s' was idle for too long", sequence.id, self._stats.name)
        for request in self._table.take_expired(now_ns):
            error = UnavailableError("timeout of the corresponding sequence has been expired")
            self._end_waiting(request, error, REJECTED)
        self._dispatch(now_ns)

    def _end_waiting(self, request: InferenceRequest, error: ServingError, reason: str) -> None:
        """Answers a request that was taken out of its sequence; whatever the answer leads to finds all in order."""
        self._waiting_count -= 1
        self._inflight_count -= 1
        request.on_cancel = None
        self._stats.record_failure(request, reason, self._clock())
        if self._order is not None:
            self._order.leave(request)
        try:
            request.respond(InferenceResponse.of_error(error))
        except Exception:
            log.exception("a response to request '%s' of model '%s' was lost", request.id, self._stats.name)
        self._check_drained()


def _held(kind: str) -> int:
    """How many requests must wait before the first is run (`TRITONSERVER_[BACKLOG_]DELAY_SCHEDULER`, for tests)."""
    value = os.environ.get(f"TRITONSERVER_{kind}DELAY_SCHEDULER", "")
    return int(value) if value.isdigit() else 0
