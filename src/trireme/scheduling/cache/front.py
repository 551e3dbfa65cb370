"""Puts the server's response cache in front of the models that ask for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from trireme.config.model_config import ModelConfig
from trireme.core.ports import Scheduler
from trireme.observe.cache_stats import CacheStats
from trireme.observe.stats import ModelStats
from trireme.scheduling.cache.local import CacheScope, LocalResponseCache
from trireme.scheduling.cache.local_scheduler import CachedScheduler, LocalCacheScheduler
from trireme.scheduling.cache.redis import RedisResponseCache
from trireme.scheduling.cache.redis_fingerprint import model_fingerprint
from trireme.scheduling.cache.redis_scheduler import RedisCacheScheduler

log = logging.getLogger(__name__)


class ResponseCacheFront:
    """One cache, and what its entries depend on. `epoch` moves whenever a model comes or goes."""

    def __init__(self, cache: LocalResponseCache | RedisResponseCache, epoch: Callable[[], int]) -> None:
        self.cache = cache
        self._epoch = epoch

    @property
    def stats(self) -> CacheStats | None:
        """What the metrics page shows; None for a cache that is not this server's alone."""
        return self.cache.stats if isinstance(self.cache, LocalResponseCache) else None

    async def before(
        self, scheduler: CachedScheduler, config: ModelConfig, stats: ModelStats, version_folder: Path
    ) -> Scheduler:
        """The scheduler that a freshly loaded copy of the model is to have: the one given, or the cache before it."""
        if not config.has_response_cache:
            return scheduler
        if isinstance(self.cache, LocalResponseCache):
            scope = CacheScope(self._epoch if config.is_ensemble else None)
            return LocalCacheScheduler(scheduler, self.cache, stats, scope)
        if config.is_ensemble:
            log.warning(
                "ensemble '%s' is not cached in Redis, where it would outlive a change of its composing models; "
                "enable response_cache for those instead",
                config.name,
            )
            return scheduler
        content = config.message.SerializeToString(deterministic=True)
        fingerprint = await asyncio.to_thread(model_fingerprint, content, version_folder)
        batching = config.dynamic_batching
        is_ordered = batching is not None and batching.preserve_ordering
        return RedisCacheScheduler(scheduler, self.cache, stats, fingerprint, is_ordered=is_ordered)

    async def close(self) -> None:
        """Lets go of the cache's threads, and of what it holds outside this process."""
        self.cache.digests.close()
        if isinstance(self.cache, RedisResponseCache):
            await self.cache.close()
