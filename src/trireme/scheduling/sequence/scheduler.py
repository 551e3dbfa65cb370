"""The sequence batcher: requests with one correlation id run one after another on one instance."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trireme.config.model_config import ModelConfig
from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import CancelledError, ServingError, UnavailableError, stopping_error
from trireme.core.ports import Durations, Instance
from trireme.core.request import SEQUENCE_START, InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import CANCELED, OTHER, REJECTED
from trireme.observe.stats import ModelStats
from trireme.scheduling.answer_round import AnswerRound
from trireme.scheduling.dynamic_batch import Defer
from trireme.scheduling.instance_runner import InstanceRunner
from trireme.scheduling.passing_on import pass_on
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.sequence.admission import SequenceAdmission, loss_of
from trireme.scheduling.sequence.dispatcher import SequenceDispatcher
from trireme.scheduling.sequence.inputs import SequenceInputs
from trireme.scheduling.sequence.running_sequences import RunningSequences
from trireme.scheduling.sequence.strategies import strategy_of
from trireme.scheduling.sequence.table import SequenceTable
from trireme.scheduling.timer import Alarm, CallLater

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """What a sequence scheduler works with, whatever its configuration; tests bring their own."""

    clock: Clock = monotonic_ns
    call_later: CallLater | None = None
    defer: Defer | None = None
    folder: Path | None = None
    """The model's, where sequences begin with a state from a file."""


class SequenceScheduler:
    """Implements `Scheduler` and `BatchRunner`.

    A sequence is bound to an instance from its first request to its last, and at most one of its requests runs at a
    time. Where every instance is full, new sequences wait in the backlog. A sequence ends with its last request, when
    it is idle for too long, when one of its waiting requests is cancelled, and when its instance is lost.

    The parts are done by others: the admission says which sequence a request belongs to, the table keeps the sequences,
    the dispatcher starts those that the strategy chooses, and `RunningSequences` follows each until its request is
    answered.
    """

    def __init__(
        self, config: ModelConfig, batching: SequenceBatchingConfig, stats: ModelStats, context: SchedulerContext
    ) -> None:
        self._stats = stats
        self._clock = context.clock
        self._defer = context.defer
        self._is_iterative = batching.is_iterative
        alarm = Alarm(self._wake, context.clock, context.call_later)
        inputs = SequenceInputs(config, batching, context.folder)
        strategy = strategy_of(config, batching, inputs, alarm.set)
        order = strategy.order
        self._table = SequenceTable(strategy.capacity, batching.max_idle_us * 1000, alarm.set)
        self._admission = SequenceAdmission(stats.name, batching, self._table, has_warmup=context.defer is not None)
        self._running_sequences = RunningSequences(
            self._table, inputs, order, context.clock, is_iterative=batching.is_iterative
        )
        self._runner = InstanceRunner(
            stats,
            context.clock,
            order,
            finish=self.finish,
            requeue=self._requeue,
            before_answer=self._running_sequences.take_answer,
        )
        self._dispatcher = SequenceDispatcher(
            self._runner, self._table, strategy, self._running_sequences, context.clock
        )
        self._on_cancel = self._cancel  # bound once, not for every request
        self._untried: set[InferenceRequest] = set()  # rescheduled by an instance that did not even try them
        stats.pending_count = lambda: self._table.waiting_count

    # What the server calls.

    def enqueue(self, request: InferenceRequest) -> None:
        """Takes the request into its sequence, or refuses one that belongs to none."""
        sequence = self._admission.admit(request)
        if self._table.is_stopped and request.flags & SEQUENCE_START:
            raise stopping_error(request.id)
        now_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = now_ns
        self._runner.inflight_count += 1
        request.on_cancel = self._on_cancel
        self._table.add(sequence, request, self._is_iterative, now_ns)
        if request.is_cancelled:
            self._cancel(request)
        elif self._defer is None:
            self._dispatcher.dispatch(now_ns)
        else:
            self._defer(self._dispatcher.dispatch_now)

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""
        return self._table.waiting_count

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered, and sequences that may go on: a server that ends waits for both."""
        return self._runner.inflight_count + len(self._table.idle)

    async def stop(self) -> None:
        """Begins no sequence any more and returns when every request is answered. Sequences that are silent end now:
        a model that stops is out of the reach of their clients."""
        self._table.is_stopped = True
        now_ns = self._clock()
        self._table.end_idle(now_ns)
        self._dispatcher.dispatch(now_ns)
        await self._runner.idle()
        self._runner.close()

    async def idle(self) -> None:
        """Returns when every request is answered and no sequence waits for its client to go on."""
        while self.inflight_count:
            await self._runner.idle()
            await self._table.none_idle()

    # What instances call.

    def attach(self, instance: Instance) -> None:
        """From now on the instance takes sequences."""
        now_ns = self._clock()
        self._table.add_instance(instance, now_ns)
        self._runner.attach(instance)
        self._dispatcher.dispatch(now_ns)

    async def drain(self, instance: Instance) -> None:
        """The instance begins no sequence any more; returns when those that it has ended, or were idle for too long."""
        slots = self._table.instance_slots.get(id(instance))
        if slots is not None:
            await slots.drain()

    def detach(self, instance: Instance) -> None:
        """The instance takes nothing any more, and its sequences end: what the model remembered of them is gone."""
        self._runner.detach(instance)
        now_ns = self._clock()
        for request in self._table.remove_instance(instance, now_ns):
            self._end(request, loss_of(request, self._stats.name), OTHER)
        self._dispatcher.dispatch(now_ns)

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Passes one response of a stream on to the client."""
        if not request.correlation_id:
            return  # a null request's
        self._runner.respond(request, response)
        if response.is_final:
            self._dispatcher.dispatch_now()

    def finish(
        self, instance: Instance, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming
    ) -> None:
        """Counts and answers the batch, then starts what has become possible."""
        requests = batch.requests
        real = [index for index, request in enumerate(requests) if request.correlation_id]
        if len(real) < len(requests):  # null requests are not answered, and counted in the size of the batch alone
            batch.requests = [requests[index] for index in real]
            responses = [responses[index] for index in real if index < len(responses)]
        gate = self._runner.gate
        if gate is None:
            self._settle(instance, batch, responses, timing)
        else:
            with gate.settling():
                self._settle(instance, batch, responses, timing)
        self._dispatcher.dispatch_now()

    def measured(self, request: InferenceRequest | None, durations: Durations) -> None:
        """Keeps what the model has measured of a request."""
        self._runner.measured(request, durations)

    def reschedule(self, request: InferenceRequest) -> None:
        """The request will wait again once `finish` of its batch has come with None in its place."""
        if not request.correlation_id:
            return
        if self._dispatcher.is_handing_over:
            self._untried.add(request)
        self._runner.reschedule(request)

    # What the registry, the rate limiter and the response cache need.

    def share(self, answer_round: AnswerRound) -> None:
        """From now on what answers lead to is begun in one round with that of other schedulers."""
        self._runner.answer_round = answer_round

    def limit(self, gate: InstanceGate) -> None:
        """From now on every execution passes the gate; which instance it may be is a matter of the sequences."""
        self._runner.gate = gate
        dispatcher = self._dispatcher
        gate.open(dispatcher.has_ready, dispatcher.dispatch_now, dispatcher.has_ready_on)

    def answer_unexecuted(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that was never enqueued, in its turn where the order is preserved."""
        self._runner.answer_unexecuted(request, response)

    def run_together(self, requests: list[InferenceRequest]) -> bool:
        """Never past the table of sequences."""
        return False

    def confine(self) -> Callable[[], None]:
        """From now on new sequences go to the instance that has had none for the longest, until the returned call."""
        return self._table.confine()

    # Answers, and ends before their time.

    def _settle(
        self, instance: Instance, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming
    ) -> None:
        now_ns = self._clock()
        if self._runner.release(instance, batch):
            self._runner.settle(instance, batch, responses, timing, now_ns)

    def _requeue(self, request: InferenceRequest) -> None:
        was_tried = request not in self._untried
        self._untried.discard(request)
        if self._running_sequences.take_back(request, was_tried):
            return
        if request.is_cancelled:
            self._end(request, CancelledError(""), CANCELED)
        else:
            self._end(request, loss_of(request, self._stats.name), OTHER)

    def _cancel(self, request: InferenceRequest) -> None:
        if request in self._running_sequences.by_request:
            self._runner.cancel(request)
            return
        now_ns = self._clock()
        for cancelled in self._table.take_cancelled(request, now_ns):
            self._end(cancelled, CancelledError(""), CANCELED)
        self._dispatcher.dispatch(now_ns)

    def _wake(self) -> None:
        """Sequences may be silent for too long, or in the backlog, or a batch has waited long enough to grow."""
        now_ns = self._clock()
        for sequence in self._table.end_idle(now_ns):
            log.debug("sequence %s of model '%s' was idle for too long", sequence.id, self._stats.name)
        for request in self._table.take_expired(now_ns):
            error = UnavailableError("timeout of the corresponding sequence has been expired")
            self._end(request, error, REJECTED)
        self._dispatcher.dispatch(now_ns)

    def _end(self, request: InferenceRequest, error: ServingError, reason: str) -> None:
        """Answers a request that was taken out of its sequence; whatever the answer leads to finds all in order."""
        runner = self._runner
        runner.inflight_count -= 1
        request.on_cancel = None
        self._stats.record_failure(request, reason, self._clock(), error.message)
        if runner.order is not None:
            runner.order.leave(request)
        pass_on(request, InferenceResponse.of_error(error))
        runner.check_idle()
