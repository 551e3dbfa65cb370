"""Requests that wait: priority levels, first come first served inside each, and what their queue policies say."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from trireme.config.model_config import DynamicBatchingConfig, QueuePolicy
from trireme.core.errors import QueueFullError
from trireme.core.request import InferenceRequest

_LEAST_LEVELS_TO_SWEEP: Final = 64
"""From so many levels on empty ones are forgotten: a model may have as many as a number of 64 bits counts."""
_LEAST_GAPS_TO_CLOSE: Final = 64
_MOST_SEARCHED: Final = 500
"""A request that leaves is searched for among so many at most."""


class LongLine:
    """Thousands of requests in the order in which they came, of which any may leave: with a client that has many of
    them here all of those leave at once, and none of them may be searched for. A dict keeps the order, and keeps a gap
    where one left until it is written anew; the first is found behind as many gaps as there may be."""

    __slots__ = ("_gaps", "_requests")

    def __init__(self, requests: Iterable[InferenceRequest]) -> None:
        self._requests = dict.fromkeys(requests)
        self._gaps = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[InferenceRequest]:
        return iter(self._requests)

    def append(self, request: InferenceRequest) -> None:
        """Takes the request at the end."""
        self._requests[request] = None

    def remove(self, request: InferenceRequest) -> None:
        """Removes the request; raises ValueError where it is not here."""
        if request not in self._requests:
            raise ValueError(request)
        del self._requests[request]
        self._note_gap()

    def popleft(self) -> InferenceRequest:
        """Removes and returns the first; there must be one."""
        request = next(iter(self._requests))
        del self._requests[request]
        self._note_gap()
        return request

    def _note_gap(self) -> None:
        """Whoever looks for the first passes by the gaps, and to close them costs as much as there are requests: as
        seldom as that, and often enough, is four times the square root of these."""
        self._gaps += 1
        if self._gaps > _LEAST_GAPS_TO_CLOSE and self._gaps * self._gaps > 16 * len(self._requests):
            self._requests = dict(self._requests)
            self._gaps = 0


Line = deque[InferenceRequest] | LongLine
"""A deque is the quickest as long as it may be searched for one that leaves."""


class QueueLevel:
    """The requests of one priority: those in time, and behind them those whose timeout passed under DELAY."""

    __slots__ = ("can_override", "delayed", "delays_on_timeout", "max_size", "timeout_us", "waiting")

    def __init__(self, policy: QueuePolicy) -> None:
        self.waiting: Line = deque()
        self.delayed: Line = deque()
        self.max_size = policy.max_queue_size
        self.timeout_us = policy.default_timeout_us
        self.can_override = policy.allow_timeout_override
        self.delays_on_timeout = policy.delays_on_timeout

    def deadline_ns(self, request: InferenceRequest) -> int:
        """When the request's timeout passes; only meaningful where the level has a timeout. One of its own counts from
        its arrival: what a model calls is on its way before it is here."""
        if self.can_override and 0 < request.timeout_us < self.timeout_us:
            return request.arrival_ns + request.timeout_us * 1000
        return request.queue_ns + self.timeout_us * 1000

    def take_expired(self, now_ns: int) -> list[InferenceRequest]:
        """Removes and returns the requests in time until now whose deadline has come."""
        if self.can_override:
            expired = [request for request in self.waiting if self.deadline_ns(request) <= now_ns]
            if expired:
                gone = set(expired)
                self.waiting = deque(request for request in self.waiting if request not in gone)
            return expired
        expired = []
        while self.waiting and self.deadline_ns(next(iter(self.waiting))) <= now_ns:
            expired.append(self.waiting.popleft())
        return expired

    def remove(self, request: InferenceRequest) -> bool:
        """Removes the request; false where it is not here."""
        self.waiting = _searchable(self.waiting)
        self.delayed = _searchable(self.delayed)
        for line in (self.waiting, self.delayed):
            try:
                line.remove(request)
            except ValueError:
                continue
            return True
        return False

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline among the requests in time."""
        if not self.timeout_us or not self.waiting:
            return None
        if self.can_override:
            return min(map(self.deadline_ns, self.waiting))
        return self.deadline_ns(next(iter(self.waiting)))


class RequestQueue:
    """All the requests of one model that wait for an instance. A level exists from its first request on."""

    __slots__ = (
        "_default",
        "_default_policy",
        "_highest",
        "_levels",
        "_only",
        "_policies",
        "_priorities",
        "_sweep_at",
        "count",
        "has_timeouts",
        "size",
    )

    def __init__(self, batching: DynamicBatchingConfig | None = None) -> None:
        self.count = 0
        self.size = 0  # the sum of the requests' batch sizes
        self._highest = max(1, batching.priority_levels) if batching else 1
        self._default = max(1, batching.default_priority_level) if batching else 1
        self._default_policy = batching.default_queue_policy if batching else QueuePolicy()
        has_priorities = batching is not None and batching.priority_levels > 0
        self._policies: Mapping[int, QueuePolicy] = (
            batching.priority_queue_policies if batching is not None and has_priorities else {}
        )
        self._priorities: list[int] = []  # ascending, beside their levels
        self._levels: list[QueueLevel] = []
        self._sweep_at = _LEAST_LEVELS_TO_SWEEP
        self._only = self._level_at(1) if self._highest == 1 else None
        policies = list(self._policies.values())
        if len(policies) < self._highest:
            policies.append(self._default_policy)
        self.has_timeouts = any(policy.default_timeout_us for policy in policies)

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
            if count >= self.count:
                first = list(waiting)
                self._only.waiting = deque()
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
        if not level.remove(request):
            return False
        self._left([request])
        return True

    def expire(self, now_ns: int) -> list[InferenceRequest]:
        """Removes and returns the requests to be rejected now; under DELAY moves them back instead."""
        rejected: list[InferenceRequest] = []
        for level in self._levels:
            if not level.timeout_us:
                continue
            expired = level.take_expired(now_ns)
            if not level.delays_on_timeout:
                rejected += expired
                continue
            for request in expired:
                level.delayed.append(request)
        self._left(rejected)
        return rejected

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline of all."""
        deadlines = [deadline for level in self._levels if (deadline := level.next_deadline_ns()) is not None]
        return min(deadlines, default=None)

    def _level_of(self, request: InferenceRequest) -> QueueLevel:
        priority = request.priority
        return self._level_at(priority if 1 <= priority <= self._highest else self._default)

    def _level_at(self, priority: int) -> QueueLevel:
        place = bisect_left(self._priorities, priority)
        if place < len(self._priorities) and self._priorities[place] == priority:
            return self._levels[place]
        if len(self._levels) >= self._sweep_at:
            self._forget_empty_levels()
            place = bisect_left(self._priorities, priority)
        level = QueueLevel(self._policies.get(priority, self._default_policy))
        self._priorities.insert(place, priority)
        self._levels.insert(place, level)
        return level

    def _forget_empty_levels(self) -> None:
        used = [place for place, level in enumerate(self._levels) if level.waiting or level.delayed]
        self._priorities = [self._priorities[place] for place in used]
        self._levels = [self._levels[place] for place in used]
        self._sweep_at = max(_LEAST_LEVELS_TO_SWEEP, 2 * len(used))

    def _left(self, requests: list[InferenceRequest]) -> None:
        self.count -= len(requests)
        for request in requests:
            self.size -= request.batch_size


def _searchable(line: Line) -> Line:
    """The same requests, so that one of them is found at once."""
    if isinstance(line, LongLine):
        return line if len(line) > _MOST_SEARCHED // 4 else deque(line)
    return line if len(line) <= _MOST_SEARCHED else LongLine(line)
