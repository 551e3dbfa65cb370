"""The rate limiter: which model's instance runs next where they share resources."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from trireme.config.option_settings import RateLimitResource
from trireme.core.ports import Instance
from trireme.scheduling.rate_limiter_resources import NO_LIMIT, InstanceLimit, ResourceKey, ResourcePools

log = logging.getLogger(__name__)


class _Place:
    """One batch that one instance could take, and how often it has."""

    __slots__ = ("execution_count", "instance", "limit")

    def __init__(self, instance: Instance, limit: InstanceLimit) -> None:
        self.instance = instance
        self.limit = limit
        self.execution_count = 0

    @property
    def rank(self) -> int:
        """The smaller, the sooner: executions so far, weighed by priority."""
        return self.execution_count * self.limit.priority


class InstanceGate:
    """The idle instances of one model. Its scheduler takes one when it has something to run, and gives it back."""

    def __init__(self, limiter: RateLimiter, limits: Mapping[str, InstanceLimit]) -> None:
        self._limiter = limiter
        self._limits = limits
        self.idle: deque[_Place] = deque()  # the longest idle first
        self._busy: dict[int, list[_Place]] = {}
        self.has_work: Callable[[], bool] = _never
        self.dispatch: Callable[[], None] = _nothing

    def open(self, has_work: Callable[[], bool], dispatch: Callable[[], None]) -> None:
        """The scheduler's two answers: whether anything waits, and to start what can be started."""
        self.has_work, self.dispatch = has_work, dispatch

    def add(self, instance: Instance, count: int) -> None:
        """The instance can take so many batches more."""
        limit = self._limit_of(instance.name)
        for _ in range(count):
            self.idle.append(_Place(instance, limit))

    def discard(self, instance: Instance) -> None:
        """The instance is to take no further batch."""
        self.idle = deque(place for place in self.idle if place.instance is not instance)

    def take(self) -> Instance | None:
        """An instance, with the resources it needs; None where it is not this model's turn. Then `dispatch` is called
        when it may be."""
        place = self._limiter.take(self)
        if place is None:
            return None
        self._busy.setdefault(id(place.instance), []).append(place)
        return place.instance

    def put_back(self, instance: Instance) -> None:
        """The instance was taken and not used; others may have its resources."""
        place = self._end(instance)
        place.execution_count -= 1
        self.idle.appendleft(place)
        self._limiter.release(place)

    def finish(self, instance: Instance, is_attached: bool) -> None:
        """The instance has executed a batch."""
        place = self._end(instance)
        if is_attached:
            self.idle.append(place)
            if self.has_work():
                self._limiter.wait(self)  # stands beside the others when the resources are given to somebody
        self._limiter.release(place)

    def close(self) -> None:
        """The model is unloaded: its instances count no longer."""
        self._limiter.remove(self)

    def _limit_of(self, name: str) -> InstanceLimit:
        """Also for an instance that came later, when its group grew."""
        known = self._limits.get(name)
        if known is not None:
            return known
        group, _, index = name.rpartition("_")
        if not index.isdecimal():
            return NO_LIMIT  # no instance of a group, but what stands in for all of them
        siblings = [limit for other, limit in self._limits.items() if other.rpartition("_")[0] == group]
        if siblings:
            return siblings[int(index) % len(siblings)]
        log.warning("instance '%s' came after the load and is not limited until its model is loaded again", name)
        return NO_LIMIT

    def _end(self, instance: Instance) -> _Place:
        places = self._busy[id(instance)]
        place = places.pop()
        if not places:
            del self._busy[id(instance)]
        return place


class RateLimiter:
    """`--rate-limit=execution_count`: one for the whole server."""

    def __init__(self, resources: Iterable[RateLimitResource] = ()) -> None:
        self._pools = ResourcePools(resources)
        self._waiting: dict[InstanceGate, None] = {}  # in the order in which they began to wait
        self._is_serving = False
        self._is_changed = False

    def gate(self, limits: Mapping[str, InstanceLimit]) -> InstanceGate:
        """A gate for the instances of one model; raises InvalidArgumentError where one of them could never run."""
        gate = InstanceGate(self, limits)
        self._pools.add(gate, limits.values())
        return gate

    def remove(self, gate: InstanceGate) -> None:
        self._waiting.pop(gate, None)
        self._pools.remove(gate)

    def wait(self, gate: InstanceGate) -> None:
        """The gate has an idle instance and something for it to do."""
        self._waiting.setdefault(gate)

    def take(self, gate: InstanceGate) -> _Place | None:
        """The gate's next place where all it needs is free and nobody with a better claim waits for the same."""
        if not gate.idle:
            self._waiting.pop(gate, None)  # nothing to wait for: it asks again when an instance is idle
            return None
        self._waiting.setdefault(gate)
        claimed: set[ResourceKey] = set()
        for place, owner in self._candidates():
            needs = place.limit.needs
            is_free = claimed.isdisjoint(needs) and self._pools.has_room_for(place.limit)
            if owner is gate and is_free:
                self._start(gate, place)
                return place
            # What has the better claim keeps what it needs from those behind it, or it might wait for ever.
            claimed.update(needs)
        return None

    def release(self, place: _Place) -> None:
        """Gives back what the place had, and lets those start that waited for it."""
        if not place.limit.needs:
            return
        self._pools.give_back(place.limit)
        self._is_changed = True
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._is_changed:
                self._is_changed = False
                self._serve()
        finally:
            self._is_serving = False

    def _serve(self) -> None:
        for owner in dict.fromkeys(owner for _, owner in self._candidates()):
            owner.dispatch()

    def _candidates(self) -> list[tuple[_Place, InstanceGate]]:
        """Every idle place of the gates that wait, the best claim first."""
        idle = [gate for gate in self._waiting if not gate.idle or not gate.has_work()]
        for gate in idle:
            del self._waiting[gate]
        found = [(place, gate) for gate in self._waiting for place in gate.idle]
        found.sort(key=lambda entry: entry[0].rank)
        return found

    def _start(self, gate: InstanceGate, place: _Place) -> None:
        gate.idle.remove(place)
        place.execution_count += 1
        if place.limit.needs:
            self._pools.take(place.limit)
            self._is_changed = True  # its rank is another one: those it stood before may be next
        del self._waiting[gate]


def _never() -> bool:
    return False


def _nothing() -> None:
    """Until a scheduler opens the gate."""
