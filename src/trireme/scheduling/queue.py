"""Requests that wait: priority levels, first come first served inside each, and what their queue policies say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

from trireme.config.model_config import DynamicBatchingConfig, QueuePolicy
from trireme.core.errors import QueueFullError
from trireme.core.request import InferenceRequest


class QueueLevel:
    """The requests of one priority: those in time, and behind them those whose timeout passed under DELAY."""

    __slots__ = ("can_override", "delayed", "delays_on_timeout", "max_size", "timeout_us", "waiting")

    def __init__(self, policy: QueuePolicy) -> None:
        self.waiting: deque[InferenceRequest] = deque()
        self.delayed: deque[InferenceRequest] = deque()
        self.max_size = policy.max_queue_size
        self.timeout_us = policy.default_timeout_us
        self.can_override = policy.allow_timeout_override
        self.delays_on_timeout = policy.delays_on_timeout

    def deadline_ns(self, request: InferenceRequest) -> int:
        """When the request's timeout passes; only meaningful where the level has a timeout."""
        timeout_us = self.timeout_us
        if self.can_override and 0 < request.timeout_us < timeout_us:
            timeout_us = request.timeout_us
        return request.queue_ns + timeout_us * 1000

    def take_expired(self, now_ns: int) -> list[InferenceRequest]:
        """Removes and returns the requests in time until now whose deadline has come."""
        if self.can_override:
            expired = [request for request in self.waiting if self.deadline_ns(request) <= now_ns]
            if expired:
                gone = set(expired)
                self.waiting = deque(request for request in self.waiting if request not in gone)
            return expired
        expired = []
        while self.waiting and self.deadline_ns(self.waiting[0]) <= now_ns:
            expired.append(self.waiting.popleft())
        return expired

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline among the requests in time."""
        if not self.timeout_us or not self.waiting:
            return None
        if self.can_override:
            return min(map(self.deadline_ns, self.waiting))
        return self.deadline_ns(self.waiting[0])


class RequestQueue:
    """All the requests of one model that wait for an instance."""

    __slots__ = ("_default", "_levels", "_only", "count", "has_timeouts", "size")

    def __init__(self, batching: DynamicBatchingConfig | None = None) -> None:
        self.count = 0
        self.size = 0  # the sum of the requests' batch sizes
        self._levels = _levels(batching)
        self._default = max(1, batching.default_priority_level) - 1 if batching else 0
        self._only = self._levels[0] if len(self._levels) == 1 else None
        self.has_timeouts = any(level.timeout_us for level in self._levels)

    def push(self, request: InferenceRequest, is_forced: bool = False) -> int | None:
        """Takes the request at the end of its level; raises where the level is full, unless forced. Returns the
        request's deadline where it has one."""
        level = self._only or self._level_of(request)
        if level.max_size and not is_forced and len(level.waiting) + len(level.delayed) >= level.max_size:
            raise QueueFullError("Exceeds maximum queue size").for_request(request.id)
        level.waiting.append(request)
        self.count += 1
        self.size += request.batch_size
        return level.deadline_ns(request) if level.timeout_us else None

    def in_order(self) -> Iterator[InferenceRequest]:
        """Every request in the order in which they are to run."""
        only = self._only
        if only is not None and not only.delayed:
            return iter(only.waiting)
        return chain.from_iterable(chain(level.waiting, level.delayed) for level in self._levels)

    def take(self, count: int) -> list[InferenceRequest]:
        """Removes and returns the first so many requests in order."""
        if self._only is not None and not self._only.delayed:
            waiting = self._only.waiting
            if count == self.count:
                first = list(waiting)
                waiting.clear()
                self.count = self.size = 0
                return first
            first = [waiting.popleft() for _ in range(count)]
            self._left(first)
            return first
        taken: list[InferenceRequest] = []
        for level in self._levels:
            for source in (level.waiting, level.delayed):
                while source and len(taken) < count:
                    taken.append(source.popleft())
        self._left(taken)
        return taken

    def remove(self, request: InferenceRequest) -> bool:
        """Removes the request; false where it is not here."""
        level = self._only or self._level_of(request)
        for source in (level.waiting, level.delayed):
            try:
                source.remove(request)
            except ValueError:
                continue
            self._left([request])
            return True
        return False

    def expire(self, now_ns: int) -> list[InferenceRequest]:
        """Removes and returns the requests to be rejected now; under DELAY moves them back instead."""
        rejected: list[InferenceRequest] = []
        for level in self._levels:
            if not level.timeout_us:
                continue
            expired = level.take_expired(now_ns)
            (level.delayed if level.delays_on_timeout else rejected).extend(expired)
        self._left(rejected)
        return rejected

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline of all."""
        deadlines = [deadline for level in self._levels if (deadline := level.next_deadline_ns()) is not None]
        return min(deadlines, default=None)

    def _level_of(self, request: InferenceRequest) -> QueueLevel:
        priority = request.priority
        return self._levels[priority - 1 if 1 <= priority <= len(self._levels) else self._default]

    def _left(self, requests: list[InferenceRequest]) -> None:
        self.count -= len(requests)
        for request in requests:
            self.size -= request.batch_size


def _levels(batching: DynamicBatchingConfig | None) -> list[QueueLevel]:
    if batching is None:
        return [QueueLevel(QueuePolicy())]
    if not batching.priority_levels:
        return [QueueLevel(batching.default_queue_policy)]
    policies, default = batching.priority_queue_policies, batching.default_queue_policy
    return [QueueLevel(policies.get(level + 1, default)) for level in range(batching.priority_levels)]
