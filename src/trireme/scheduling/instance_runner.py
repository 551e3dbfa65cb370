"""Executions: which instances are free, which batches are out, and how their requests are answered and counted."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import Clock
from trireme.core.errors import InternalError, UnavailableError
from trireme.core.ports import Instance
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.stats import BACKEND, ModelStats
from trireme.scheduling.queue import RequestQueue
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.turn import Turn

log = logging.getLogger(__name__)

_NO_TIME: Final = BatchTiming(0, 0, 0)


class _Stream:
    """How far a request has come that is answered response by response."""

    __slots__ = ("batch", "count", "has_failed", "instance", "is_answered", "last_ns", "timing")

    def __init__(self) -> None:
        self.count = 0
        self.last_ns = 0
        self.is_answered = False
        self.has_failed = False
        self.instance: Instance | None = None  # these three once the execution is over
        self.batch: Batch | None = None
        self.timing: BatchTiming | None = None


class InstanceRunner(ABC):
    """Implements `BatchRunner`; a scheduler is a runner that also decides what to start, in `_dispatch`."""

    def __init__(
        self, stats: ModelStats, clock: Clock, queue: RequestQueue, order: ResponseOrder | None = None
    ) -> None:
        self._stats = stats
        self._clock = clock
        self._queue = queue
        self._order = order
        self._turn = Turn()
        self._free: deque[Instance] = deque()  # an instance stands here once for every batch it can still take
        self._gate: InstanceGate | None = None  # where executions are limited, idle instances stand there instead
        self._attached: dict[int, Instance] = {}
        self._running: dict[Batch, Instance] = {}
        self._streams: dict[InferenceRequest, _Stream] = {}
        self._rescheduled: set[InferenceRequest] = set()
        self._inflight_count = 0
        self._is_stopped = False
        self._drained: asyncio.Event | None = None

    # What a scheduler adds.

    @abstractmethod
    def _dispatch(self, now_ns: int) -> None:
        """Starts what is to be started on the free instances."""

    @abstractmethod
    def _requeue(self, request: InferenceRequest) -> None:
        """Takes back a request that is to run again."""

    # What instances call.

    def attach(self, instance: Instance) -> None:
        """From now on the instance takes batches."""
        if id(instance) in self._attached:
            return
        self._attached[id(instance)] = instance
        busy = sum(1 for running in self._running.values() if running is instance)
        count = max(0, instance.max_concurrency - busy)
        if self._gate is not None:
            self._gate.add(instance, count)
        else:
            self._free.extend([instance] * count)
            self._spread()
        self._dispatch(self._clock())

    async def drain(self, instance: Instance) -> None:  # noqa: B027, for most schedulers there is nothing to do
        """Nothing binds requests to an instance, unless a scheduler says otherwise."""

    def detach(self, instance: Instance) -> None:
        """From now on the instance takes none."""
        if self._attached.pop(id(instance), None) is not None:
            self._free = deque(free for free in self._free if free is not instance)
            if self._gate is not None:
                self._gate.discard(instance)

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Passes one response of a stream on to the client."""
        stream = self._streams.get(request)
        if stream is None:
            stream = self._begin_stream(request)
        now_ns = self._clock()
        if stream.count == 0 and response.error is None:
            self._stats.record_first_response(request, now_ns)
        self._stats.record_response(stream.count, now_ns - stream.last_ns, response, request.is_cancelled)
        stream.count += 1
        stream.last_ns = now_ns
        if response.is_final:
            stream.is_answered = True
            stream.has_failed = response.error is not None
            self._inflight_count -= 1
            request.on_cancel = None
            if stream.batch is not None:
                self._end_stream(request, stream, now_ns)
        self._answer(request, response)
        if self._drained is not None:
            self._check_drained()

    def finish(
        self, instance: Instance, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming
    ) -> None:
        """Frees the instance, starts the next batch, then counts and answers this one."""
        if self._running.pop(batch, None) is None:
            log.error("instance '%s' finished a batch that is not running", instance.name)
            return
        now_ns = self._clock()
        is_attached = id(instance) in self._attached
        if self._gate is not None:
            self._gate.finish(instance, is_attached)
        elif is_attached:
            self._free.append(instance)
        if is_attached and self._queue.count:
            # The instance works while its clients are being answered.
            self._dispatch(now_ns)
        requests = batch.requests
        stats = self._stats
        if len(responses) == len(requests) and _have_succeeded(responses):
            stats.record_batch(requests, batch.size, batch.start_ns, now_ns, timing)
            if stats.first_response is not None:
                for request in requests:
                    stats.record_first_response(request, now_ns)
        else:
            stats.record_execution(batch.size, timing)
            responses = self._record_mixed(instance, batch, responses, timing, now_ns)
        if len(requests) == 1:
            self._answer_batch(batch, responses, timing, now_ns)
        else:
            self._turn.begin()
            try:
                self._answer_batch(batch, responses, timing, now_ns)
            finally:
                self._turn.end()
        if self._drained is not None:
            self._check_drained()

    def _answer_batch(
        self, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming, now_ns: int
    ) -> None:
        for request, response in zip(batch.requests, responses, strict=True):
            if request.trace is not None:
                request.trace.ran(batch.start_ns, timing[0], timing[1], now_ns, batch.size)
            if response is not None:
                self._inflight_count -= 1
                request.on_cancel = None
                self._answer(request, response)

    def reschedule(self, request: InferenceRequest) -> None:
        """The request will wait again once `finish` of its batch has come with None in its place."""
        self._rescheduled.add(request)

    # What the registry, the rate limiter and the response cache need.

    def share(self, turn: Turn) -> None:
        """From now on what answers lead to is begun in one turn with that of other schedulers."""
        self._turn = turn

    def limit(self, gate: InstanceGate) -> None:
        """From now on every execution passes the gate; called before the first instance is attached."""
        self._gate = gate
        gate.open(lambda: self._queue.count > 0, lambda: self._dispatch(self._clock()))

    def answer_unexecuted(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that was never enqueued, in its turn where the order is preserved."""
        if self._order is not None:
            self._order.join(request)
        self._answer(request, response)

    def run_together(self, requests: list[InferenceRequest]) -> bool:
        """Gives these, past the queue and whatever the scheduler would join, to the instance that has been free the
        longest, as one batch; false, and nothing is done, where none is free or executions are limited."""
        if self._gate is not None or not self._free:
            return False
        now_ns = self._clock()
        for request in requests:
            request.arrival_ns = request.queue_ns = now_ns
            if self._order is not None:
                self._order.join(request)
        self._inflight_count += len(requests)
        self._start(requests, len(requests), now_ns)
        return True

    def confine(self) -> Callable[[], None]:
        """Where a scheduler binds requests to instances: from now on new ones go to the instance that has had the
        fewest, until the call that is returned."""
        return _nothing

    # What schedulers call.

    def _start(self, requests: list[InferenceRequest], size: int, now_ns: int) -> None:
        """Gives the requests to the instance that has been free the longest; there must be one."""
        instance = self._free.popleft()
        batch = Batch(requests, size, now_ns)
        self._run_on(instance, batch)

    def _run_on(self, instance: Instance, batch: Batch) -> None:
        """Gives the batch to the instance; one that raises has failed the batch, unless it had finished it before."""
        self._running[batch] = instance
        try:
            instance.execute(batch)
        except Exception as error:
            log.exception("instance '%s' raised while it was given a batch", instance.name)
            if batch in self._running:
                failure = InternalError(f"instance '{instance.name}' failed: {type(error).__name__}: {error}")
                self.finish(instance, batch, [InferenceResponse.of_error(failure) for _ in batch.requests], _NO_TIME)

    def _cancel_running(self, request: InferenceRequest) -> None:
        """Tells the instance that has the request; does nothing where none has it any longer."""
        stream = self._streams.get(request)
        if stream is not None and stream.instance is not None:
            stream.instance.cancel(request)
            return
        for batch, instance in self._running.items():
            if request in batch.requests:
                instance.cancel(request)
                return

    async def stop(self) -> None:
        """Takes no further request and returns when every request is answered and no batch is out."""
        self._is_stopped = True
        self._dispatch(self._clock())
        if self._inflight_count or self._running:
            if self._drained is None:
                self._drained = asyncio.Event()
            await self._drained.wait()
        if self._gate is not None:
            self._gate.close()

    def _check_drained(self) -> None:
        if self._drained is not None and not self._inflight_count and not self._running:
            self._drained.set()

    def _refuse_if_stopped(self, request: InferenceRequest) -> None:
        if self._is_stopped:
            raise UnavailableError(
                "Server is stopping, scheduler for model has stopped accepting new inference requests"
            ).for_request(request.id)

    def _answer(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Passes the response on; a client's trouble must not reach the other requests of the batch."""
        try:
            if self._order is None:
                request.respond(response)
            else:
                self._order.respond(request, response)
        except Exception:
            log.exception("a response to request '%s' of model '%s' was lost", request.id, self._stats.name)

    # The slow half: failures and streams.

    def _record_mixed(
        self,
        instance: Instance,
        batch: Batch,
        responses: Sequence[InferenceResponse | None],
        timing: BatchTiming,
        now_ns: int,
    ) -> list[InferenceResponse | None]:
        """Counts a batch in which some requests failed, are streamed or run again; returns what to answer."""
        answers = list(responses[: len(batch.requests)])
        for _ in range(len(batch.requests) - len(answers)):
            answers.append(InferenceResponse.of_error(InternalError("the model instance gave no response")))
        succeeded = []
        for request, response in zip(batch.requests, answers, strict=True):
            if response is None:
                self._part_with(request, instance, batch, timing, now_ns)
            elif response.error is not None:
                self._stats.record_failure(request, BACKEND, now_ns)
            else:
                succeeded.append(request)
                self._stats.record_first_response(request, now_ns)
        if succeeded:
            self._stats.record_success(succeeded, batch.start_ns, now_ns, timing)
        return answers

    def _part_with(
        self, request: InferenceRequest, instance: Instance, batch: Batch, timing: BatchTiming, now_ns: int
    ) -> None:
        if request in self._rescheduled:
            self._rescheduled.discard(request)
            self._requeue(request)
            return
        stream = self._streams.get(request)
        if stream is None:
            stream = self._streams[request] = _Stream()
            stream.last_ns = batch.start_ns
        stream.instance, stream.batch, stream.timing = instance, batch, timing
        if stream.is_answered:
            self._end_stream(request, stream, now_ns)

    def _begin_stream(self, request: InferenceRequest) -> _Stream:
        stream = self._streams[request] = _Stream()
        stream.last_ns = request.queue_ns
        for batch in self._running:
            if request in batch.requests:
                stream.last_ns = batch.start_ns
                if request.trace is not None:
                    request.trace.began(batch.start_ns, batch.size)
                break
        return stream

    def _end_stream(self, request: InferenceRequest, stream: _Stream, now_ns: int) -> None:
        """The request has its final response and its execution is over: it is counted, once."""
        del self._streams[request]
        if stream.has_failed:
            self._stats.record_failure(request, BACKEND, now_ns)
        elif stream.batch is not None and stream.timing is not None:
            self._stats.record_success([request], stream.batch.start_ns, now_ns, stream.timing)

    def _spread(self) -> None:
        """Puts the free places of different instances beside each other, so that load is shared from the start."""
        seen: dict[int, int] = {}
        ranked = []
        for instance in self._free:
            rank = seen[id(instance)] = seen.get(id(instance), -1) + 1
            ranked.append((rank, instance))
        self._free = deque(instance for _, instance in sorted(ranked, key=lambda pair: pair[0]))


def _nothing() -> None:
    pass


def _have_succeeded(responses: Sequence[InferenceResponse | None]) -> bool:
    for response in responses:  # noqa: SIM110, a generator costs more than the whole loop
        if response is None or response.error is not None:
            return False
    return True
