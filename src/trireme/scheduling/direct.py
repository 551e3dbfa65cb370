"""The default scheduler: each request is executed alone, first come first served, as instances become free."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import CancelledError, ServingError, stopping_error
from trireme.core.ports import Durations, Instance
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import CANCELED
from trireme.observe.stats import ModelStats
from trireme.scheduling.answer_round import AnswerRound
from trireme.scheduling.instance_runner import AnswerCallback, InstanceRunner
from trireme.scheduling.passing_on import pass_on
from trireme.scheduling.queue import RequestQueue
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.response_order import ResponseOrder


class DirectScheduler:
    """Implements `Scheduler` and `BatchRunner`; other schedulers over one shared queue change how it starts and what it
    waits for."""

    def __init__(
        self,
        stats: ModelStats,
        *,
        clock: Clock = monotonic_ns,
        queue: RequestQueue | None = None,
        order: ResponseOrder | None = None,
    ) -> None:
        self._stats = stats
        self._clock = clock
        self._queue = queue or RequestQueue()
        self._runner = InstanceRunner(stats, clock, order, finish=self.finish, requeue=self._requeue)
        self._is_stopped = False
        self._is_dispatching = False
        self._hold_count = _held_requests()
        self._on_cancel = self._cancel  # bound once, not for every request
        stats.pending_count = lambda: self._queue.count

    def enqueue(self, request: InferenceRequest) -> None:
        """Starts the request at once where an instance is free and nobody waits, else keeps it."""
        if self._is_stopped:
            raise stopping_error(request.id)
        now_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = now_ns
        if request.is_cancelled:
            self._answer_cancelled(request)
            return
        runner = self._runner
        runner.inflight_count += 1
        request.on_cancel = self._on_cancel
        if runner.free and not self._queue.count and not self._is_dispatching and not self._hold_count:
            self._start_alone(request, now_ns)
        else:
            self._queue.push(request)
            self._dispatch(now_ns)

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""
        return self._queue.count

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered."""
        return self._runner.inflight_count

    async def stop(self) -> None:
        """Takes no further request and returns when every request is answered and no batch is out."""
        self._is_stopped = True
        self._dispatch(self._clock())
        await self._runner.idle()
        self._runner.close()

    async def idle(self) -> None:
        """Returns when every request is answered and no batch is out."""
        await self._runner.idle()

    # What instances call.

    def attach(self, instance: Instance) -> None:
        """From now on the instance takes batches."""
        self._runner.attach(instance)
        self._dispatch(self._clock())

    async def drain(self, instance: Instance) -> None:
        """Nothing binds requests to an instance."""

    def detach(self, instance: Instance) -> None:
        """From now on the instance takes none."""
        self._runner.detach(instance)

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Passes one response of a stream on to the client."""
        self._runner.respond(request, response)

    def finish(
        self, instance: Instance, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming
    ) -> None:
        """Frees the instance, starts the next batch, then counts and answers this one."""
        runner = self._runner
        now_ns = self._clock()
        if not runner.release(instance, batch):
            return
        if self._queue.count:
            # The instance works while its clients are being answered.
            self._dispatch(now_ns)
        runner.settle(instance, batch, responses, timing, now_ns)

    def measured(self, request: InferenceRequest | None, durations: Durations) -> None:
        """Keeps what the model has measured of a request."""
        self._runner.measured(request, durations)

    def reschedule(self, request: InferenceRequest) -> None:
        """The request will wait again once `finish` of its batch has come with None in its place."""
        self._runner.reschedule(request)

    # What the registry, the rate limiter and the response cache need.

    def share(self, answer_round: AnswerRound) -> None:
        """From now on what answers lead to is begun in one round with that of other schedulers."""
        self._runner.answer_round = answer_round

    def limit(self, gate: InstanceGate) -> None:
        """From now on every execution passes the gate; called before the first instance is attached."""
        self._runner.gate = gate
        gate.open(lambda: self._queue.count > 0, lambda: self._dispatch(self._clock()))

    def look_at_answers(self, look: AnswerCallback) -> None:
        """From now on every response of an execution is shown before its client gets it."""
        self._runner.before_answer = look

    def give_up_waiting(self, error: ServingError) -> None:
        """Answers with the error what no instance has; nothing of it is counted."""
        for request in self._queue.take(self._queue.count):
            self._end_queued(request, InferenceResponse.of_error(error))

    def answer_unexecuted(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that was never enqueued, in its turn where the order is preserved."""
        self._runner.answer_unexecuted(request, response)

    def run_together(self, requests: list[InferenceRequest]) -> bool:
        """Runs these as one batch, past the queue, where an instance is free for them; false where none is."""
        return self._runner.start_together(requests)

    def confine(self) -> Callable[[], None]:
        """Where a scheduler binds requests to instances: from now on new ones go to the instance that has had the
        fewest, until the call that is returned. Here nothing is bound."""
        return _nothing

    # Which request starts, and when.

    def _start_alone(self, request: InferenceRequest, now_ns: int) -> None:
        """Starts a request that finds an instance free and nobody waiting."""
        self._is_dispatching = True
        try:
            self._runner.start([request], request.batch_size, now_ns)
        finally:
            self._is_dispatching = False
        if self._queue.count:
            self._dispatch(self._clock())

    def _dispatch(self, now_ns: int) -> None:
        """Starts batches while instances are free; not entered again from inside, where an instance answers at
        once, so that a long queue does not become a deep stack."""
        runner = self._runner
        if runner.gate is not None:
            self._dispatch_limited(runner.gate, now_ns)
            return
        if self._is_dispatching or not runner.free or not self._queue.count or (self._hold_count and self._is_held()):
            return
        self._is_dispatching = True
        try:
            while self._start_next(now_ns) and runner.free and self._queue.count:
                now_ns = self._clock()
        finally:
            self._is_dispatching = False

    def _dispatch_limited(self, gate: InstanceGate, now_ns: int) -> None:
        """The same where an instance may only start when the rate limiter says so; the gate calls again later."""
        if self._is_dispatching or (self._hold_count and self._is_held()):
            return
        self._is_dispatching = True
        try:
            while self._queue.count:
                instance = gate.take()
                if instance is None:
                    return
                self._runner.free.append(instance)
                if not self._start_next(now_ns):
                    # It is better to wait, and without keeping from others what they could use meanwhile.
                    gate.put_back(self._runner.free.pop())
                    return
                now_ns = self._clock()
        finally:
            self._is_dispatching = False

    def _start_next(self, now_ns: int) -> bool:
        """Starts one batch off the queue; false where it is better to wait."""
        [request] = self._queue.take(1)
        self._runner.start([request], request.batch_size, now_ns)
        return True

    def _is_held(self) -> bool:
        if not self._is_stopped and self._queue.count < self._hold_count:
            return True
        self._hold_count = 0
        return False

    # Requests that run again, and those that never do.

    def _requeue(self, request: InferenceRequest) -> None:
        if request.is_cancelled:
            self._stats.record_failure(request, CANCELED, self._clock())
            self._end_queued(request, InferenceResponse.of_error(CancelledError("")))
            return
        now_ns = request.queue_ns = self._clock()
        self._queue.push(request, is_forced=True)
        self._dispatch(now_ns)

    def _cancel(self, request: InferenceRequest) -> None:
        if not self._queue.remove(request):
            self._runner.cancel(request)
            return
        self._stats.record_failure(request, CANCELED, self._clock())
        self._end_queued(request, InferenceResponse.of_error(CancelledError("")))

    def _answer_cancelled(self, request: InferenceRequest) -> None:
        self._stats.record_failure(request, CANCELED, self._clock())
        pass_on(request, InferenceResponse.of_error(CancelledError("")))

    def _end_queued(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that never ran, past any order, and lets go of it."""
        runner = self._runner
        runner.inflight_count -= 1
        request.on_cancel = None
        pass_on(request, response)
        if runner.order is not None:
            runner.order.leave(request)
        runner.check_idle()


def _nothing() -> None:
    """Ends a confinement that there was not."""


def _held_requests() -> int:
    """How many requests must wait before the first is run (`TRITONSERVER_DELAY_SCHEDULER`, for tests)."""
    value = os.environ.get("TRITONSERVER_DELAY_SCHEDULER", "")
    return int(value) if value.isdecimal() else 0
