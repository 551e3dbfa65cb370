"""The rate limiter: which model's instance runs next where they share resources."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from trireme.config.options.setting_values import RateLimitResource
from trireme.core.ports import Instance
from trireme.scheduling.rate_limiter_resources import NO_LIMIT, InstanceLimit, ResourceKey, ResourcePools


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
        self._limits = dict(limits)
        self._leaving: set[str] = set()  # instances that the configuration names no longer, and that are still here
        self._present: dict[int, Instance] = {}
        self.idle: deque[_Place] = deque()  # the longest idle first
        self._busy: dict[int, list[_Place]] = {}
        self.has_work: Callable[[], bool] = _never
        self.dispatch: Callable[[], None] = _nothing
        self.has_work_for: Callable[[Instance], bool] | None = None

    def open(
        self,
        has_work: Callable[[], bool],
        dispatch: Callable[[], None],
        has_work_for: Callable[[Instance], bool] | None = None,
    ) -> None:
        """The scheduler's answers: whether anything waits, to start what can be started, and, where not every instance
        can run what waits, whether this one can."""
        self.has_work, self.dispatch, self.has_work_for = has_work, dispatch, has_work_for

    def add(self, instance: Instance, count: int) -> None:
        """The instance can take so many batches more."""
        self._present[id(instance)] = instance
        for _ in range(count):
            self.idle.append(_Place(instance, self._limit_of(instance)))

    def discard(self, instance: Instance) -> None:
        """The instance is to take no further batch."""
        self.idle = deque(place for place in self.idle if place.instance is not instance)
        self._present.pop(id(instance), None)
        if instance.name in self._leaving:
            self._leaving.discard(instance.name)
            del self._limits[instance.name]
            self._limiter.measure(self, self._limits)

    def change(self, limits: Mapping[str, InstanceLimit]) -> None:
        """Other limits from now on; a batch that is out has what it took. An instance that is not named any more keeps
        its limit until it goes. Raises InvalidArgumentError, and changes nothing, where one could never run."""
        leaving = {instance.name for instance in self._present.values()}.intersection(self._limits).difference(limits)
        changed = {**{name: self._limits[name] for name in leaving}, **limits}
        self._limiter.measure(self, changed)
        self._limits, self._leaving = changed, leaving
        for place in self.idle:
            place.limit = self._limit_of(place.instance)
        self._limiter.reconsider()

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
        taken = place.limit
        place.limit = self._limit_of(instance)
        self.idle.appendleft(place)
        self._limiter.release(taken)

    def finish(self, instance: Instance, is_attached: bool) -> None:
        """The instance has executed a batch."""
        place = self._end(instance)
        taken = place.limit
        if is_attached:
            place.limit = self._limit_of(instance)
            self.idle.append(place)
            if self.has_work():
                self._limiter.wait(self)  # stands beside the others when the resources are given to somebody
        self._limiter.release(taken)

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Inside, what `finish` gives back is nobody's yet: only the answers tell what this model can run next."""
        with self._limiter.paused():
            yield
            if self.idle and self.has_work():
                self._limiter.wait(self)

    def close(self) -> None:
        """The model is unloaded: its instances count no longer."""
        self._limiter.remove(self)

    def _limit_of(self, instance: Instance) -> InstanceLimit:
        """None for what is no instance of a group, but stands in for all of them."""
        return self._limits.get(instance.name, NO_LIMIT)

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
        self._pause_count = 0

    def gate(self, limits: Mapping[str, InstanceLimit]) -> InstanceGate:
        """A gate for the instances of one model; raises InvalidArgumentError where one of them could never run."""
        gate = InstanceGate(self, limits)
        self._pools.add(gate, limits.values())
        return gate

    def measure(self, gate: InstanceGate, limits: Mapping[str, InstanceLimit]) -> None:
        """The gate's instances have these limits now; raises InvalidArgumentError as `gate` does."""
        self._pools.replace(gate, limits.values())

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

    def release(self, taken: InstanceLimit) -> None:
        """Gives back what an execution had, and lets those start that waited for it."""
        if not taken.needs:
            return
        self._pools.give_back(taken)
        self.reconsider()

    def reconsider(self) -> None:
        """There is more for those who wait, or they need less: lets them start what can be started."""
        self._is_changed = True
        self._serve_waiting()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, what is given back is kept; those who wait for it are served at the end."""
        self._pause_count += 1
        try:
            yield
        finally:
            self._pause_count -= 1
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        if self._is_serving or self._pause_count:
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
        found = [(place, gate) for gate in self._waiting for place in gate.idle if _can_use(gate, place.instance)]
        found.sort(key=lambda entry: entry[0].rank)
        return found

    def _start(self, gate: InstanceGate, place: _Place) -> None:
        gate.idle.remove(place)
        place.execution_count += 1
        if place.limit.needs:
            self._pools.take(place.limit)
            self._is_changed = True  # its rank is another one: those it stood before may be next
        del self._waiting[gate]


def _can_use(gate: InstanceGate, instance: Instance) -> bool:
    return gate.has_work_for is None or gate.has_work_for(instance)


def _never() -> bool:
    return False


def _nothing() -> None:
    """Until a scheduler opens the gate."""
