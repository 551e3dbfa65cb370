"""A Redis cache in front of a scheduler: each request waits for the cache's word, shortly, before it is executed."""

from __future__ import annotations

import asyncio

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import CancelledError, ServingError
from trireme.core.ports import Scheduler
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.stats import CANCELED, ModelStats
from trireme.scheduling.cache_key import request_digest
from trireme.scheduling.redis_cache import RedisResponseCache, entry_key
from trireme.scheduling.response_cache_scheduler import KeepAnswer, answer_hit, is_worth_keeping


class RedisCacheScheduler:
    """Implements `Scheduler` around another one, for one copy of one model. Requests whose lookups are under way at
    the same time may overtake each other, unless `is_ordered`."""

    def __init__(
        self,
        inner: Scheduler,
        cache: RedisResponseCache,
        stats: ModelStats,
        fingerprint: str,
        *,
        is_ordered: bool = False,
        clock: Clock = monotonic_ns,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._stats = stats
        self._fingerprint = fingerprint
        self._clock = clock
        self._lookups: dict[InferenceRequest, asyncio.Task[None]] = {}
        self._is_ordered = is_ordered
        self._last: asyncio.Task[None] | None = None  # the lookup that the next one must not overtake
        self._is_stopped = False
        stats.pending_count = lambda: self.pending_count

    def enqueue(self, request: InferenceRequest) -> None:
        """Asks the cache where it can be asked; the request goes on when it has answered."""
        if self._is_stopped or request.is_cancelled:
            self._inner.enqueue(request)
            return
        start_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = start_ns
        key = entry_key(self._stats.name, self._stats.version, self._fingerprint, request_digest(request))
        if not self._cache.is_usable and not (self._is_ordered and self._lookups):
            self._execute(request, key, start_ns)
            return
        request.on_cancel = self._cancel
        task = asyncio.get_running_loop().create_task(self._look_up(request, key, start_ns, self._last))
        self._lookups[request] = task
        if self._is_ordered:
            self._last = task

    async def stop(self) -> None:
        """Takes no further request and returns when every request it took has been answered."""
        self._is_stopped = True
        while self._lookups:
            await asyncio.wait(list(self._lookups.values()))
        await self._inner.stop()

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""
        return self._inner.pending_count + len(self._lookups)

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered."""
        return self._inner.inflight_count + len(self._lookups)

    def keep(self, key: str, response: InferenceResponse, lookup_ns: int) -> None:
        """An executed request is about to be answered: keeps a good answer, and counts the miss."""
        if not response.is_final:
            return
        start_ns = self._clock()
        if is_worth_keeping(response):
            self._cache.insert(key, response)
        end_ns = self._clock()
        self._stats.record_cache_miss(lookup_ns + end_ns - start_ns, end_ns)

    async def _look_up(
        self, request: InferenceRequest, key: str, start_ns: int, before: asyncio.Task[None] | None
    ) -> None:
        entry = None
        try:
            entry = await self._cache.lookup(key)
            if before is not None:
                await asyncio.wait((before,))
        finally:
            # Cancelled, it was answered already; whatever else happened, it is not left without an answer.
            if self._lookups.pop(request, None) is not None:
                request.on_cancel = None
                if entry is None:
                    self._execute_or_refuse(request, key, start_ns)
                else:
                    answer_hit(self._inner, self._stats, request, entry.response(), start_ns, self._clock())

    def _execute(self, request: InferenceRequest, key: str, start_ns: int) -> None:
        request.respond = KeepAnswer(self.keep, key, request.respond, self._clock() - start_ns)
        self._inner.enqueue(request)

    def _execute_or_refuse(self, request: InferenceRequest, key: str, start_ns: int) -> None:
        """The caller of `enqueue` is gone by now, so that a refusal is an answer."""
        try:
            self._execute(request, key, start_ns)
        except ServingError as error:
            request.respond(InferenceResponse.of_error(error))

    def _cancel(self, request: InferenceRequest) -> None:
        task = self._lookups.pop(request, None)
        if task is not None:
            task.cancel()
            request.on_cancel = None
            self._stats.record_failure(request, CANCELED, self._clock())
            request.respond(InferenceResponse.of_error(CancelledError("")))
