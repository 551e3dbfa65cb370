"""The queue of a model, played through: clients that wait for their answers, a batcher, instances.

Played rather than solved: batches are taken by what waits at the moment an instance is free, and a closed formula for
the tail of the latency under that does not exist. A few hundred batches take a millisecond.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Service = Callable[[int, int], float]
"""Seconds for a batch of so many requests while so many instances are at work, this one included."""
BATCHES = 150
"""Enough for the tail of the latencies."""
_FIRST_ARRIVALS = 32
_WARM_UP = 0.2
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Queue:
    """A model under a load."""

    clients: int
    instances: int
    largest_batch: int
    """In requests."""
    think_s: float
    """Between an answer leaving the instance and the client's next request in the queue."""


@dataclass(frozen=True, slots=True)
class SimulatedResult:
    """What came of it; seconds."""

    requests_per_s: float
    mean_s: float
    percentiles_s: dict[int, float]
    mean_batch: float
    busy_share: float
    """Of the instances' time."""


def play(
    queue: Queue, service: Service, spread: Sequence[float] = (), seed: int = 0, batches: int = BATCHES
) -> SimulatedResult:
    """At least so many batches; `spread` has factors of the service time, each as likely as the others."""
    return _Play(queue, service, spread, seed).run(batches)


class _Play:
    def __init__(self, queue: Queue, service: Service, spread: Sequence[float], seed: int) -> None:
        self._queue = queue
        self._service = service
        self._spread = spread or (1.0,)
        self._chance = random.Random(seed)
        self._waiting: deque[tuple[float, int]] = deque()
        """When they came, and how many."""
        self._count = 0
        self._free = queue.instances
        self._events: list[tuple[float, int, list[tuple[float, int]]]] = []
        """Ends of batches with their requests; arrivals have a single entry whose time is negative."""
        self._number = 0
        self._latencies: list[tuple[float, int]] = []
        self._sizes: list[int] = []
        self._busy_s = 0.0

    def run(self, batches: int) -> SimulatedResult:
        queue = self._queue
        groups = min(queue.clients, _FIRST_ARRIVALS)
        gap = self._service(1, 1) / max(1, groups)
        for number in range(groups):
            self._push(number * gap, [(-1.0, (queue.clients + number) // groups)])
        wanted = max(batches, 12 * queue.instances, 4 * queue.clients // max(1, queue.largest_batch))
        now = began = 0.0
        is_warm = False
        while len(self._sizes) < wanted:
            now, _, blocks = heapq.heappop(self._events)
            if blocks[0][0] < 0:
                self._waiting.append((now, blocks[0][1]))
                self._count += blocks[0][1]
            else:
                self._finish(now, blocks)
            while self._free and self._count:
                self._begin(now)
            if not is_warm and len(self._sizes) > wanted * _WARM_UP:
                is_warm, began = True, now
                self._latencies.clear()
                self._sizes = self._sizes[-1:]
                wanted -= int(wanted * _WARM_UP)
                self._busy_s = 0.0
        return self._result(max(now - began, 1e-9))

    def _push(self, when: float, blocks: list[tuple[float, int]]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, blocks))

    def _begin(self, now: float) -> None:
        taken, size = [], 0
        while self._waiting and size < self._queue.largest_batch:
            came, count = self._waiting.popleft()
            part = min(count, self._queue.largest_batch - size)
            if part < count:
                self._waiting.appendleft((came, count - part))
            taken.append((came, part))
            size += part
        self._count -= size
        busy = self._queue.instances - self._free + 1
        self._free -= 1
        duration = self._service(size, busy) * self._spread[int(self._chance.random() * len(self._spread))]
        self._busy_s += duration
        self._sizes.append(size)
        self._push(now + duration, taken)

    def _finish(self, now: float, blocks: list[tuple[float, int]]) -> None:
        self._free += 1
        size = 0
        for came, count in blocks:
            self._latencies.append((now - came + self._queue.think_s, count))
            size += count
        self._push(now + self._queue.think_s, [(-1.0, size)])

    def _result(self, seconds: float) -> SimulatedResult:
        self._latencies.sort()
        total = sum(count for _, count in self._latencies) or 1
        mean = sum(value * count for value, count in self._latencies) / total
        found: dict[int, float] = {}
        passed, wanted = 0, list(PERCENTILES)
        for value, count in self._latencies:
            passed += count
            while wanted and passed >= total * wanted[0] / 100:
                found[wanted.pop(0)] = value
        for percent in wanted:
            found[percent] = self._latencies[-1][0] if self._latencies else 0.0
        return SimulatedResult(
            requests_per_s=total / seconds,
            mean_s=mean,
            percentiles_s=found,
            mean_batch=sum(self._sizes) / len(self._sizes),
            busy_share=min(1.0, self._busy_s / seconds / self._queue.instances),
        )
