"""`max_inflight`: how many requests of one run may be at the same step at once, and which wait for room there."""

from __future__ import annotations

from collections import deque

from trireme.scheduling.ensemble.plan import PlannedStep
from trireme.scheduling.ensemble.scope import Scope


class _HeldBack:
    """The scopes in which a step is to be fired once it has room."""

    __slots__ = ("is_firing", "scopes")

    def __init__(self) -> None:
        self.scopes: deque[Scope] = deque()
        self.is_firing = False


class InflightLimit:
    """Counts the requests of one run by step. Only runs of ensembles with a limit have one."""

    __slots__ = ("_counts", "_held", "_most", "held_count")

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[int, int] = {}
        self._held: dict[int, _HeldBack] = {}
        self.held_count = 0
        """How many requests wait for room, at all steps together."""

    def enter(self, step: PlannedStep, scope: Scope) -> bool:
        """Counts one more request at the step, or holds it back where the step has as many as it may."""
        count = self._counts.get(step.index, 0)
        if count < self._most:
            self._counts[step.index] = count + 1
            return True
        held = self._held.get(step.index)
        if held is None:
            held = self._held[step.index] = _HeldBack()
        held.scopes.append(scope)
        scope.held_count += 1
        self.held_count += 1
        return False

    def leave(self, step: PlannedStep) -> None:
        """A request at the step has had its final response."""
        self._counts[step.index] -= 1

    def begin_firing(self, step: PlannedStep) -> bool:
        """Whether there is something to be fired at the step and nobody does so already: it is not entered again from
        inside, so that requests which are answered at once do not pile up on the stack."""
        held = self._held.get(step.index)
        if held is None or held.is_firing:
            return False
        held.is_firing = True
        return True

    def next_held(self, step: PlannedStep) -> Scope | None:
        """The scope in which the step is to be fired next; None where it has no room or nothing waits."""
        held = self._held[step.index]
        if not held.scopes or self._counts[step.index] >= self._most:
            return None
        self.held_count -= 1
        return held.scopes.popleft()

    def end_firing(self, step: PlannedStep) -> None:
        """The counterpart of `begin_firing`."""
        self._held[step.index].is_firing = False
