"""The default scheduler: each request is executed alone, first come first served, as instances become free."""

from __future__ import annotations

import os

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import CancelledError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.stats import CANCELED, OTHER, ModelStats
from trireme.scheduling.instance_runner import InstanceRunner
from trireme.scheduling.queue import RequestQueue
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.response_order import ResponseOrder


class DirectScheduler(InstanceRunner):
    """Implements `Scheduler`; other schedulers over one shared queue change how it starts and what it waits for."""

    def __init__(
        self,
        stats: ModelStats,
        *,
        clock: Clock = monotonic_ns,
        queue: RequestQueue | None = None,
        order: ResponseOrder | None = None,
    ) -> None:
        super().__init__(stats, clock, queue or RequestQueue(), order)
        self._is_dispatching = False
        self._hold_count = _held_requests()
        self._on_cancel = self._cancel  # bound once, not for every request
        stats.pending_count = lambda: self._queue.count

    def enqueue(self, request: InferenceRequest) -> None:
        """Starts the request at once where an instance is free and nobody waits, else keeps it."""
        if self._is_stopped:
            self._refuse_if_stopped(request)
        now_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = now_ns
        if request.is_cancelled:
            self._answer_cancelled(request)
            return
        self._inflight_count += 1
        request.on_cancel = self._on_cancel
        if self._free and not self._queue.count and not self._is_dispatching and not self._hold_count:
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
        return self._inflight_count

    def reject_queued(self, error: ServingError) -> None:
        """Answers everything that still waits with this error, where no instance will come back to run it."""
        now_ns = self._clock()
        for request in self._queue.take(self._queue.count):
            self._stats.record_failure(request, OTHER, now_ns)
            self._end_queued(request, InferenceResponse.of_error(error))

    def _start_alone(self, request: InferenceRequest, now_ns: int) -> None:
        """Starts a request that finds an instance free and nobody waiting."""
        self._is_dispatching = True
        try:
            self._start([request], request.batch_size, now_ns)
        finally:
            self._is_dispatching = False
        if self._queue.count:
            self._dispatch(self._clock())

    def _dispatch(self, now_ns: int) -> None:
        """Starts batches while instances are free; not entered again from inside, where an instance answers at
        once, so that a long queue does not become a deep stack."""
        if self._gate is not None:
            self._dispatch_limited(self._gate, now_ns)
            return
        if self._is_dispatching or not self._free or not self._queue.count or (self._hold_count and self._is_held()):
            return
        self._is_dispatching = True
        try:
            while self._start_next(now_ns) and self._free and self._queue.count:
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
                self._free.append(instance)
                if not self._start_next(now_ns):
                    # It is better to wait, and without keeping from others what they could use meanwhile.
                    gate.put_back(self._free.pop())
                    return
                now_ns = self._clock()
        finally:
            self._is_dispatching = False

    def _start_next(self, now_ns: int) -> bool:
        """Starts one batch off the queue; false where it is better to wait."""
        [request] = self._queue.take(1)
        self._start([request], request.batch_size, now_ns)
        return True

    def _requeue(self, request: InferenceRequest) -> None:
        if request.is_cancelled:
            self._stats.record_failure(request, CANCELED, self._clock())
            self._end_queued(request, InferenceResponse.of_error(CancelledError("")))
            return
        now_ns = request.queue_ns = self._clock()
        self._queue.push(request, is_forced=True)
        self._dispatch(now_ns)

    def _is_held(self) -> bool:
        if not self._is_stopped and self._queue.count < self._hold_count:
            return True
        self._hold_count = 0
        return False

    def _cancel(self, request: InferenceRequest) -> None:
        if not self._queue.remove(request):
            self._cancel_running(request)
            return
        self._stats.record_failure(request, CANCELED, self._clock())
        self._end_queued(request, InferenceResponse.of_error(CancelledError("")))

    def _answer_cancelled(self, request: InferenceRequest) -> None:
        self._stats.record_failure(request, CANCELED, self._clock())
        request.respond(InferenceResponse.of_error(CancelledError("")))

    def _end_queued(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that never ran, past any order, and lets go of it."""
        self._inflight_count -= 1
        request.on_cancel = None
        request.respond(response)
        if self._order is not None:
            self._order.leave(request)
        self._check_drained()


def _held_requests() -> int:
    """How many requests must wait before the first is run (`TRITONSERVER_DELAY_SCHEDULER`, for tests)."""
    value = os.environ.get("TRITONSERVER_DELAY_SCHEDULER", "")
    return int(value) if value.isdigit() else 0
