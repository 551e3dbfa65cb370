"""The tensors of one iteration of an ensemble's run, and what waits for the steps that are held back in it."""

from __future__ import annotations

from collections.abc import Callable

from trireme.core.tensor import Tensor


class Scope:
    """The root holds what exists once; every response of a decoupled step opens a scope of its own below the one its
    step ran in."""

    __slots__ = ("_waiting", "above", "branches", "held_count", "missing", "open_outputs", "values")

    def __init__(
        self, values: dict[str, Tensor | None], missing: list[int], open_outputs: int, above: Scope | None = None
    ) -> None:
        self.values = values
        self.missing = missing  # by step: how many of its inputs are not known yet
        self.open_outputs = open_outputs
        self.above = above
        self.branches: set[Scope] | None = None  # those that are not answered yet
        self.held_count = 0  # how many steps are held back here
        self._waiting: list[Callable[[], None]] | None = None  # called when none is any longer

    def branch(self) -> Scope:
        """A scope below this one, with what is known here."""
        scope = Scope(dict(self.values), self.missing[:], self.open_outputs, self)
        if self.branches is None:
            self.branches = set()
        self.branches.add(scope)
        return scope

    def wait(self, settle: Callable[[], None]) -> None:
        """Calls this when no step is held back here any longer."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(settle)

    def fired_held(self) -> None:
        """One step less is held back here; after the last of them the responses that led here count as taken."""
        self.held_count -= 1
        if not self.held_count and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for settle in waiting:
                settle()

    def close(self) -> None:
        """Its outputs are known: the scope above needs it no longer."""
        if self.above is not None and self.above.branches is not None:
            self.above.branches.discard(self)
