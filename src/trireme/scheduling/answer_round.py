"""The moment in which a batch's requests are answered, and what their answers lead to is begun."""

from __future__ import annotations

from collections.abc import Callable


class AnswerRound:
    """Shared by the schedulers of a server: requests that the answers of one batch make, the next steps of ensembles
    above all, are put off until all of its answers are out, so that they can share a batch again."""

    __slots__ = ("_calls", "_depth")

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._depth = 0  # instances in this process may answer while others are being answered

    @property
    def is_open(self) -> bool:
        """Whether answers of a batch are going out right now."""
        return self._depth > 0

    def begin(self) -> None:
        self._depth += 1

    def put_off(self, call: Callable[[], None]) -> None:
        """Makes the call when the round, which must be open, ends."""
        self._calls.append(call)

    def end(self) -> None:
        self._depth -= 1
        if not self._depth and self._calls:
            calls, self._calls = self._calls, []
            for call in calls:
                call()
