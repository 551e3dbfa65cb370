"""The dynamic batcher: requests that wait together run together, as far as sizes, shapes and delays allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from trireme.config.model_config import DynamicBatchingConfig, ModelConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import UnavailableError, stopping_error
from trireme.core.ports import Instance
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import REJECTED
from trireme.observe.stats import ModelStats
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.queue import RequestQueue
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.timer import Alarm, CallLater

_REGATHER_SHARE: Final = 20
"""Waiting for clients that have just been answered may cost this fraction of what the batch before took."""

Defer = Callable[[Callable[[], None]], object]
"""Puts a call off to the end of the event loop's turn, as `loop.call_soon` does."""


class DynamicBatchScheduler(DirectScheduler):
    """Batches as `dynamic_batching` says.

    With `defer`, an idle instance gets its batch at the end of the turn, so that requests which one turn of the event
    loop brought share it; without, the first of them starts at once and alone, unless it comes within a turn.

    With a queue delay, those that waited for an instance wait a moment longer for the clients of the batch that has
    just ended: clients that send one request after the other would else be split in two halves that take turns.
    """

    def __init__(
        self,
        config: ModelConfig,
        batching: DynamicBatchingConfig,
        stats: ModelStats,
        *,
        clock: Clock = monotonic_ns,
        call_later: CallLater | None = None,
        defer: Defer | None = None,
    ) -> None:
        order = ResponseOrder() if batching.preserve_ordering else None
        super().__init__(stats, clock=clock, queue=RequestQueue(batching), order=order)
        self._max_batch_size = config.max_batch_size
        self._delay_ns = batching.max_queue_delay_us * 1000
        self._preferred = frozenset(batching.preferred_batch_sizes) or frozenset({config.max_batch_size})
        self._max_preferred = max(self._preferred)
        self._is_choosy = self._delay_ns > 0 or self._preferred != {config.max_batch_size}
        self._compatibility = compatibility(config)
        self._alarm = Alarm(self._wake, clock, call_later)
        self._defer = defer
        self._is_deferred = False
        self._can_start_alone = defer is None and not self._delay_ns and not self._queue.has_timeouts
        # While a batch waits to grow: the size at which to look again, and what its requests have in common.
        self._wake_size = 0
        self._waiting_for: object = None
        # After a batch: how long, and up to which size, those who waited for its end wait for its clients.
        self._regather_until_ns = 0
        self._regather_size = 0

    def enqueue(self, request: InferenceRequest) -> None:
        """Keeps the request, and starts what can be started."""
        if self._is_stopped:
            raise stopping_error(request.id)
        now_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = now_ns
        if request.is_cancelled:
            self._answer_cancelled(request)
            return
        runner = self._runner
        is_alone = (
            self._can_start_alone and not self._queue.count and not self._hold_count and not runner.answer_round.is_open
        )
        if not is_alone or not runner.free or self._is_dispatching:
            self._keep(request, now_ns)
            return
        runner.inflight_count += 1
        request.on_cancel = self._on_cancel
        if runner.order is not None:
            runner.order.join(request)
        self._start_alone(request, now_ns)

    def finish(
        self, instance: Instance, batch: Batch, responses: Sequence[InferenceResponse | None], timing: BatchTiming
    ) -> None:
        """Lets those who wait for the instance wait for the clients that are about to be answered too."""
        if self._delay_ns and self._queue.count:
            now_ns = self._clock()
            self._regather_until_ns = now_ns + (now_ns - batch.start_ns) // _REGATHER_SHARE
            self._regather_size = self._queue.size + batch.size
        super().finish(instance, batch, responses, timing)

    def _keep(self, request: InferenceRequest, now_ns: int) -> None:
        deadline_ns = self._queue.push(request)
        runner = self._runner
        runner.inflight_count += 1
        request.on_cancel = self._on_cancel
        if runner.order is not None:
            runner.order.join(request)
        if deadline_ns is not None:
            self._alarm.set(deadline_ns)
        if (not runner.free and runner.gate is None) or self._is_deferred or self._is_dispatching:
            return
        if self._wake_size and self._queue.size < self._wake_size and self._fits_waiting(request):
            return
        if self._defer is not None:
            self._is_deferred = True
            self._defer(self._dispatch_deferred)
        elif runner.answer_round.is_open:
            self._is_deferred = True
            runner.answer_round.put_off(self._dispatch_deferred)
        else:
            self._dispatch(now_ns)

    def _dispatch_deferred(self) -> None:
        self._is_deferred = False
        self._dispatch(self._clock())

    def _start_next(self, now_ns: int) -> bool:
        if self._queue.has_timeouts:
            self._expire()
            if not self._queue.count:
                return False
        self._wake_size = 0
        if self._queue.count == 1 and not self._delay_ns:
            return super()._start_next(now_ns)
        count, size = self._choose(now_ns)
        if not count:
            return False
        self._runner.start(self._queue.take(count), size, now_ns)
        return True

    def _choose(self, now_ns: int) -> tuple[int, int]:
        """How many requests off the queue to run now, and their total size; none where the batch should grow."""
        count, size, is_closed, common = self._longest_prefix()
        if self._is_stopped or not self._is_choosy:
            return count, size
        pending = list(islice(self._queue.in_order(), count))
        oldest_ns = min(request.queue_ns for request in pending)
        is_overdue = self._delay_ns > 0 and now_ns - oldest_ns >= self._delay_ns
        if not is_overdue:
            preferred = self._preferred_prefix(pending)
            if preferred is not None:
                return preferred
        if not self._delay_ns:
            return count, size
        is_regathering = now_ns < self._regather_until_ns and size < self._regather_size
        if (is_overdue and not is_regathering) or is_closed or size >= self._max_preferred:
            return count, size
        wake_size = min(preferred for preferred in self._preferred if preferred > size)
        if is_overdue:
            self._wait_to_grow(min(wake_size, self._regather_size), common, self._regather_until_ns)
        else:
            self._wait_to_grow(wake_size, common, oldest_ns + self._delay_ns)
        return 0, 0

    def _longest_prefix(self) -> tuple[int, int, bool, object]:
        """The most requests that could run together: their count, their size, whether no further one could join
        them, and what they have in common."""
        limit = self._max_batch_size
        compatibility = self._compatibility
        common: object = None
        count = size = 0
        for request in self._queue.in_order():
            grown = size + request.batch_size
            if compatibility is None:
                if grown > limit and count:
                    return count, size, True, None
            elif not count:
                common = compatibility(request)
            elif grown > limit or compatibility(request) != common:
                return count, size, True, common
            count += 1
            size = grown
            if size >= limit:
                return count, size, True, common
        return count, size, False, common

    def _preferred_prefix(self, pending: list[InferenceRequest]) -> tuple[int, int] | None:
        """The longest prefix of a preferred size; where there is none and the next request would take the batch beyond
        the largest of them, what is before it."""
        size = 0
        best = None
        for index, request in enumerate(pending):
            if best is None and index and size + request.batch_size > self._max_preferred:
                best = (index, size)
            size += request.batch_size
            if size in self._preferred:
                best = (index + 1, size)
        return best

    def _wait_to_grow(self, wake_size: int, common: object, until_ns: int) -> None:
        self._wake_size = wake_size
        self._waiting_for = common
        self._alarm.set(until_ns)

    def _fits_waiting(self, request: InferenceRequest) -> bool:
        return self._compatibility is None or self._compatibility(request) == self._waiting_for

    def _wake(self) -> None:
        """A delay or a timeout has passed, or the clock says it nearly has and the alarm is set again."""
        self._wake_size = 0
        if self._queue.has_timeouts:
            self._expire()
        self._dispatch(self._clock())

    def _expire(self) -> None:
        now_ns = self._clock()
        rejected = self._queue.expire(now_ns)
        deadline_ns = self._queue.next_deadline_ns()
        if deadline_ns is not None:
            self._alarm.set(deadline_ns)
        for request in rejected:
            self._stats.record_failure(request, REJECTED, now_ns, "Request timeout expired")
            self._end_queued(request, InferenceResponse.of_error(UnavailableError("Request timeout expired")))


def compatibility(config: ModelConfig) -> Callable[[InferenceRequest], object] | None:
    """What two requests must have in common to share a batch: the shapes of inputs that vary and are not ragged, and
    which of the optional inputs there are; None where any two can."""
    varying = tuple(name for name, entry in config.inputs.items() if -1 in entry.dims and not entry.allow_ragged_batch)
    optional = tuple(name for name, entry in config.inputs.items() if entry.is_optional and name not in varying)
    if not varying and not optional:
        return None
    if len(varying) == 1 and not optional:
        only = varying[0]
        return lambda request: tuple(request.inputs[only].shape[1:]) if only in request.inputs else None

    def shapes(request: InferenceRequest) -> object:
        inputs = request.inputs
        return [tuple(inputs[name].shape[1:]) if name in inputs else None for name in varying]

    if not optional:
        return shapes
    return lambda request: (shapes(request), [name in request.inputs for name in optional])
