"""Runs batches for a scheduler: which instances are free, which batches are out, how their requests are answered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import Clock
from trireme.core.errors import InternalError
from trireme.core.ports import Durations, Instance
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import model_failure_reason
from trireme.observe.stats import ModelStats
from trireme.scheduling.answer_round import AnswerRound
from trireme.scheduling.passing_on import answer_unpassed
from trireme.scheduling.rate_limiter import InstanceGate
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.streamed_requests import StreamedRequests

log = logging.getLogger(__name__)

_NO_TIME: Final = BatchTiming(0, 0, 0)

FinishCallback = Callable[[Instance, Batch, Sequence[InferenceResponse | None], BatchTiming], None]
"""`BatchRunner.finish` of the scheduler."""
RequestCallback = Callable[[InferenceRequest], None]
AnswerCallback = Callable[[InferenceRequest, InferenceResponse], None]


class InstanceRunner:
    """The instances of one model at work for the scheduler that owns it. The scheduler decides what to start, and is
    what instances report to; it passes on here what they report.

    It hands in what it does itself: `finish`, called for an instance that raised instead; `requeue`, which takes back a
    request that is to run again; and `before_answer`, where it looks at responses before their clients get them.
    """

    def __init__(
        self,
        stats: ModelStats,
        clock: Clock,
        order: ResponseOrder | None,
        *,
        finish: FinishCallback,
        requeue: RequestCallback,
        before_answer: AnswerCallback | None = None,
    ) -> None:
        self.free: deque[Instance] = deque()  # an instance stands here once for every batch it can still take
        self.gate: InstanceGate | None = None  # where executions are limited, idle instances stand there instead
        self.order = order
        self.answer_round = AnswerRound()
        self.inflight_count = 0  # requests that the scheduler has taken and nobody has answered
        self._stats = stats
        self._clock = clock
        self._finish = finish
        self._requeue = requeue
        self.before_answer = before_answer
        self._attached: dict[int, Instance] = {}
        self._running: dict[Batch, Instance] = {}
        self._streams = StreamedRequests(stats, self._running)
        self._rescheduled: set[InferenceRequest] = set()
        self._idle: asyncio.Event | None = None  # while somebody waits until nothing is left to do

    # Which instances there are.

    def attach(self, instance: Instance) -> None:
        """From now on the instance takes batches."""
        if id(instance) in self._attached:
            return
        self._attached[id(instance)] = instance
        busy = sum(1 for running in self._running.values() if running is instance)
        count = max(0, instance.max_concurrency - busy)
        if self.gate is not None:
            self.gate.add(instance, count)
        else:
            self.free.extend([instance] * count)
            self._spread()

    def detach(self, instance: Instance) -> None:
        """From now on the instance takes none."""
        if self._attached.pop(id(instance), None) is not None:
            self.free = deque(free for free in self.free if free is not instance)
            if self.gate is not None:
                self.gate.discard(instance)

    @property
    def attached(self) -> list[Instance]:
        """The instances that take batches, in the order in which they came."""
        return list(self._attached.values())

    # Executions, from their start to the answers.

    def start(self, requests: list[InferenceRequest], size: int, now_ns: int) -> None:
        """Gives the requests to the instance that has been free the longest; there must be one."""
        instance = self.free.popleft()
        self.start_on(instance, Batch(requests, size, now_ns))

    def start_on(self, instance: Instance, batch: Batch) -> None:
        """Gives the batch to an instance that is free no longer; one that raises has failed the batch, unless it had
        finished it before."""
        self._running[batch] = instance
        try:
            instance.execute(batch)
        except Exception as error:
            log.exception("instance '%s' raised while it was given a batch", instance.name)
            if batch in self._running:
                failure = InternalError(f"instance '{instance.name}' failed: {type(error).__name__}: {error}")
                self._finish(instance, batch, [InferenceResponse.of_error(failure) for _ in batch.requests], _NO_TIME)

    def start_together(self, requests: list[InferenceRequest]) -> bool:
        """Gives these, past whatever the scheduler would do with them, to the instance that has been free the longest,
        as one batch; false, and nothing is done, where none is free or executions are limited."""
        if self.gate is not None or not self.free:
            return False
        now_ns = self._clock()
        for request in requests:
            request.arrival_ns = request.queue_ns = now_ns
            if self.order is not None:
                self.order.join(request)
        self.inflight_count += len(requests)
        self.start(requests, len(requests), now_ns)
        return True

    def cancel(self, request: InferenceRequest) -> None:
        """Tells the instance that has the request; does nothing where none has it any longer."""
        instance = self._streams.instance_of(request)
        if instance is not None:
            instance.cancel(request)
            return
        for batch, instance in self._running.items():
            if request in batch.requests:
                instance.cancel(request)
                return

    def reschedule(self, request: InferenceRequest) -> None:
        """The request is taken back once its batch is settled with None in its place."""
        self._rescheduled.add(request)

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Counts one response of a stream and passes it on to the client."""
        self._streams.record_response(request, response, self._clock())
        if response.is_final:
            self.inflight_count -= 1
            request.on_cancel = None
        self.answer(request, response)
        if self._idle is not None:
            self.check_idle()

    def measured(self, request: InferenceRequest | None, durations: Durations) -> None:
        """Keeps what the model has measured of a request."""
        guard = self._stats.counting_failures.guard
        guard(self._stats.record_measured, durations)
        if request is None:
            return
        request.measured = durations if request.measured is None else {**request.measured, **durations}
        if request.trace is not None:
            guard(request.trace.durations.update, durations)

    def release(self, instance: Instance, batch: Batch) -> bool:
        """The instance is through with the batch and can take the next; false for a batch that is not running."""
        if self._running.pop(batch, None) is None:
            log.error("instance '%s' finished a batch that is not running", instance.name)
            return False
        is_attached = id(instance) in self._attached
        if self.gate is not None:
            self.gate.finish(instance, is_attached)
        elif is_attached:
            self.free.append(instance)
        return True

    def settle(
        self,
        instance: Instance,
        batch: Batch,
        responses: Sequence[InferenceResponse | None],
        timing: BatchTiming,
        now_ns: int,
    ) -> None:
        """Counts and answers a batch whose instance has been released."""
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
            self.answer_round.begin()
            try:
                self._answer_batch(batch, responses, timing, now_ns)
            finally:
                self.answer_round.end()
        if self._idle is not None:
            self.check_idle()

    def answer(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Passes the response on; a client's trouble must not reach the other requests of the batch."""
        try:
            if self.before_answer is not None:
                self.before_answer(request, response)
        except Exception:
            log.exception(
                "failed to look at a response of model '%s', which is passed on all the same", self._stats.name
            )
        try:
            if self.order is None:
                request.respond(response)
            else:
                self.order.respond(request, response)
        except Exception as error:
            answer_unpassed(request, response, error)

    def answer_unexecuted(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that the scheduler never took, in its turn where the order is preserved."""
        if self.order is not None:
            self.order.join(request)
        self.answer(request, response)

    # When there is nothing left to do.

    async def idle(self) -> None:
        """Returns when every request is answered and no batch is out."""
        while self.inflight_count or self._running:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    def check_idle(self) -> None:
        """Wakes `idle` where the request that has just been answered was the last."""
        if self._idle is not None and not self.inflight_count and not self._running:
            idle, self._idle = self._idle, None
            idle.set()

    def close(self) -> None:
        """The model is unloaded: its instances count no longer where executions are limited."""
        if self.gate is not None:
            self.gate.close()

    def _answer_batch(
        self, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming, now_ns: int
    ) -> None:
        for request, response in zip(batch.requests, responses, strict=True):
            if request.trace is not None:
                ran = request.trace.ran
                self._stats.counting_failures.guard(ran, batch.start_ns, timing[0], timing[1], now_ns, batch.size)
            if response is not None:
                self.inflight_count -= 1
                request.on_cancel = None
                self.answer(request, response)

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
                reason, message = model_failure_reason(request, response.error), response.error.message
                self._stats.record_failure(request, reason, now_ns, message, batch.start_ns, timing)
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
        else:
            self._streams.record_execution(request, instance, batch, timing, now_ns)

    def _spread(self) -> None:
        """Puts the free places of different instances beside each other, so that load is shared from the start."""
        seen: dict[int, int] = {}
        ranked = []
        for instance in self.free:
            rank = seen[id(instance)] = seen.get(id(instance), -1) + 1
            ranked.append((rank, instance))
        self.free = deque(instance for _, instance in sorted(ranked, key=lambda pair: pair[0]))


def _have_succeeded(responses: Sequence[InferenceResponse | None]) -> bool:
    for response in responses:  # noqa: SIM110, a generator costs more than the whole loop
        if response is None or response.error is not None:
            return False
    return True
