"""Requests that wait for the word of a cache: each is answered once, whatever comes first, in the order promised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trireme.core.clock import Clock
from trireme.core.errors import CancelledError, ServingError, unwritten_error
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import CANCELED
from trireme.observe.stats import ModelStats
from trireme.scheduling.passing_on import pass_on

log = logging.getLogger(__name__)

F = TypeVar("F")


class CacheLookups:
    """The lookups of one model that are under way. They may overtake each other, unless `is_ordered`."""

    def __init__(self, stats: ModelStats, clock: Clock, *, is_ordered: bool) -> None:
        self._stats = stats
        self._clock = clock
        self._is_ordered = is_ordered
        self._tasks: dict[InferenceRequest, asyncio.Task[None]] = {}
        self._last: asyncio.Task[None] | None = None  # the lookup that the next one must not overtake

    @property
    def count(self) -> int:
        return len(self._tasks)

    @property
    def must_queue(self) -> bool:
        """Whether a request that needs no lookup has to wait for those that do."""
        return self._is_ordered and bool(self._tasks)

    def begin(
        self,
        request: InferenceRequest,
        find: Callable[[], Awaitable[F]],
        settle: Callable[[InferenceRequest, F | None], None],
    ) -> None:
        """Calls `settle` with what was found, None where that failed; not for a request that is cancelled meanwhile."""
        request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = request.queue_ns
        request.on_cancel = self._cancel
        task = asyncio.get_running_loop().create_task(self._run(request, find, settle, self._last))
        self._tasks[request] = task
        if self._is_ordered:
            self._last = task

    async def drain(self) -> None:
        """Returns when none is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(
        self,
        request: InferenceRequest,
        find: Callable[[], Awaitable[F]],
        settle: Callable[[InferenceRequest, F | None], None],
        before: asyncio.Task[None] | None,
    ) -> None:
        found: F | None = None
        try:
            found = await find()
            if before is not None:
                await asyncio.wait((before,))
        finally:
            # Cancelled, it was answered already; whatever else happened, it is not left without an answer.
            if self._tasks.pop(request, None) is not None:
                request.on_cancel = None
                try:
                    settle(request, found)
                except Exception as error:  # the caller of `enqueue` is gone by now, so that a refusal is an answer
                    if not isinstance(error, ServingError):
                        log.exception("request '%s' could not be enqueued", request.id)
                    pass_on(request, InferenceResponse.of_error(unwritten_error(error)))

    def _cancel(self, request: InferenceRequest) -> None:
        task = self._tasks.pop(request, None)
        if task is not None:
            task.cancel()
            request.on_cancel = None
            self._stats.record_failure(request, CANCELED, self._clock())
            pass_on(request, InferenceResponse.of_error(CancelledError("")))
