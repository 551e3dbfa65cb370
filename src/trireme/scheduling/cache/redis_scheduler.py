"""A Redis cache in front of a scheduler: each request waits for the cache's word, shortly, before it is executed."""

from __future__ import annotations

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.stats import ModelStats
from trireme.scheduling.cache.key import is_long_to_digest, request_digest
from trireme.scheduling.cache.local import CachedResponse
from trireme.scheduling.cache.local_scheduler import (
    CachedScheduler,
    CacheFiller,
    answer_hit,
    enqueue_filling,
    is_worth_keeping,
)
from trireme.scheduling.cache.lookups import CacheLookups
from trireme.scheduling.cache.redis import RedisResponseCache, entry_key


class RedisCacheScheduler:
    """Implements `Scheduler` around another one, for one copy of one model. Requests whose lookups are under way at
    the same time may overtake each other, unless `is_ordered`."""

    def __init__(
        self,
        inner: CachedScheduler,
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
        self._lookups = CacheLookups(stats, clock, is_ordered=is_ordered)
        self._is_stopped = False
        stats.pending_count = lambda: self.pending_count

    def enqueue(self, request: InferenceRequest) -> None:
        """Asks the cache where it can be asked; the request goes on when it has answered."""
        if self._is_stopped or request.is_cancelled:
            self._inner.enqueue(request)
            return
        start_ns = self._clock()
        if not self._cache.is_usable and not self._lookups.must_queue:
            self._execute(request, None, start_ns)
            return
        self._lookups.begin(
            request, lambda: self._look_up(request), lambda _, found: self._settle(request, found, start_ns)
        )

    async def stop(self) -> None:
        """Takes no further request and returns when every request it took has been answered."""
        self._is_stopped = True
        await self._lookups.drain()
        await self._inner.stop()

    async def idle(self) -> None:
        """Returns when every request is answered."""
        while self.inflight_count:
            await self._lookups.drain()
            await self._inner.idle()

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""
        return self._inner.pending_count + self._lookups.count

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered."""
        return self._inner.inflight_count + self._lookups.count

    def keep(self, key: str | None, response: InferenceResponse, lookup_ns: int) -> None:
        """An executed request is about to be answered: keeps a good answer, and counts the miss."""
        if not response.is_final:
            return
        start_ns = self._clock()
        if key is not None and is_worth_keeping(response):
            self._cache.insert(key, response)
        end_ns = self._clock()
        if response.error is None:
            self._stats.record_cache_miss(lookup_ns + end_ns - start_ns, end_ns)

    async def _look_up(self, request: InferenceRequest) -> tuple[str, CachedResponse | None]:
        is_long = is_long_to_digest(request)
        digest = await self._cache.digests.compute(request) if is_long else request_digest(request)
        key = entry_key(self._stats.name, self._stats.version, self._fingerprint, digest)
        return key, await self._cache.lookup(key)

    def _settle(
        self, request: InferenceRequest, found: tuple[str, CachedResponse | None] | None, start_ns: int
    ) -> None:
        key, entry = found if found is not None else (None, None)
        if entry is None:
            self._execute(request, key, start_ns)
        else:
            answer_hit(self._inner, self._stats, request, entry.response(), start_ns, self._clock())

    def _execute(self, request: InferenceRequest, key: str | None, start_ns: int) -> None:
        enqueue_filling(self._inner, request, CacheFiller(self.keep, key, request.respond, self._clock() - start_ns))
