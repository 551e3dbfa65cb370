"""The response cache in front of a scheduler: what it knows is answered at once, what it does not know is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.ports import Scheduler
from trireme.core.request import InferenceRequest, RespondCallback
from trireme.core.response import InferenceResponse
from trireme.observe.stats import ModelStats
from trireme.scheduling.cache.key import is_long_to_digest, request_digest
from trireme.scheduling.cache.local import CacheKey, CacheScope, LocalResponseCache
from trireme.scheduling.cache.lookups import CacheLookups

log = logging.getLogger(__name__)

K = TypeVar("K")


class CachedScheduler(Scheduler, Protocol):
    """What a cache can stand in front of."""

    def answer_unexecuted(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that was never enqueued, in its turn where the order of answers is preserved."""


class LocalCacheScheduler:
    """Implements `Scheduler` around another one, for one copy of one model. Equal requests that come while none of
    them is answered yet are each executed."""

    def __init__(
        self,
        inner: CachedScheduler,
        cache: LocalResponseCache,
        stats: ModelStats,
        scope: CacheScope,
        clock: Clock = monotonic_ns,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._stats = stats
        self._scope = scope
        self._clock = clock
        self._digests = CacheLookups(stats, clock, is_ordered=True)
        self._is_stopped = False
        stats.pending_count = lambda: self.pending_count

    def enqueue(self, request: InferenceRequest) -> None:
        """Answers from the cache, or passes the request on and remembers its answer."""
        if self._is_stopped or request.is_cancelled:
            self._inner.enqueue(request)
            return
        start_ns = self._clock()
        is_long = is_long_to_digest(request)
        if is_long or self._digests.must_queue:
            digest = self._cache.digests.compute if is_long else _digest_in_turn
            self._digests.begin(
                request, lambda: digest(request), lambda _, found: self._look_up(request, found, start_ns)
            )
        else:
            self._look_up(request, request_digest(request), start_ns)

    def _look_up(self, request: InferenceRequest, digest: bytes | None, start_ns: int) -> None:
        if digest is None:
            self._inner.enqueue(request)
            return
        key = self._scope.key(digest)
        entry = self._cache.lookup(key)
        end_ns = self._clock()
        self._cache.stats.lookup_ns += end_ns - start_ns
        if entry is None:
            enqueue_filling(self._inner, request, CacheFiller(self.keep, key, request.respond, end_ns - start_ns))
            return
        answer_hit(self._inner, self._stats, request, entry.response(), start_ns, end_ns)

    async def stop(self) -> None:
        """As the inner scheduler does it; then nothing of this copy's answers is left."""
        self._is_stopped = True
        await self._digests.drain()
        await self._inner.stop()
        self._cache.forget(self._scope)

    async def idle(self) -> None:
        """Returns when every request is answered."""
        while self.inflight_count:
            await self._digests.drain()
            await self._inner.idle()

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""
        return self._inner.pending_count + self._digests.count

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered."""
        return self._inner.inflight_count + self._digests.count

    def keep(self, key: CacheKey, response: InferenceResponse, lookup_ns: int) -> None:
        """An executed request is about to be answered: keeps a good answer, and counts the miss."""
        if not response.is_final:
            return
        start_ns = self._clock()
        if is_worth_keeping(response) and not self._is_stopped:
            self._cache.insert(key, response)
        end_ns = self._clock()
        self._cache.stats.insertion_ns += end_ns - start_ns
        if response.error is None:  # hits and misses add up to the requests that succeeded, as in Triton
            self._stats.record_cache_miss(lookup_ns + end_ns - start_ns, end_ns)


class CacheFiller(Generic[K]):
    """Stands in for the client of a request that the cache did not know: its answer is kept on the way."""

    __slots__ = ("_keep", "_key", "_lookup_ns", "_respond")

    def __init__(
        self, keep: Callable[[K, InferenceResponse, int], None], key: K, respond: RespondCallback, lookup_ns: int
    ) -> None:
        self._keep = keep
        self._key = key
        self._respond = respond
        self._lookup_ns = lookup_ns

    def __call__(self, response: InferenceResponse) -> None:
        try:
            self._keep(self._key, response, self._lookup_ns)
        except Exception:
            log.exception("the response cache failed to keep a response, which is passed on all the same")
        self._respond(response)


def enqueue_filling(inner: CachedScheduler, request: InferenceRequest, filler: RespondCallback) -> None:
    """A request that the cache did not know; where it is refused it is as it came."""
    respond = request.respond
    request.respond = filler
    try:
        inner.enqueue(request)
    except Exception:
        request.respond = respond  # which whoever is told of the refusal lets go of
        raise


async def _digest_in_turn(request: InferenceRequest) -> bytes:
    return request_digest(request)


def is_worth_keeping(response: InferenceResponse) -> bool:
    """Whether the response is all that an equal request would be answered: not an error, not the end of a stream."""
    return response.error is None and response.is_final and not response.is_empty


def answer_hit(
    inner: CachedScheduler,
    stats: ModelStats,
    request: InferenceRequest,
    response: InferenceResponse,
    start_ns: int,
    end_ns: int,
) -> None:
    """Counts and answers a request that needs no execution, in its turn where the model preserves the order."""
    request.queue_ns = start_ns
    if not request.arrival_ns:
        request.arrival_ns = start_ns
    if request.trace is not None:
        request.trace.is_cached = True
    stats.record_cache_hit(request, end_ns - start_ns, end_ns)
    stats.record_first_response(request, end_ns)
    inner.answer_unexecuted(request, response)
