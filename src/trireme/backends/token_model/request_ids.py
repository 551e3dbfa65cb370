"""Which requests run under which ids, and which of them are being stopped."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

from trireme.backends.token_model.token_answer import TokenAnswer

_LEAST_TO_SWEEP: Final = 64
"""So many ids are kept in any case, before those are looked for whose requests have ended."""


class RequestIds:
    """Requests come and are stopped in one thread, and may end in any, several answers at once; the id "" is none."""

    def __init__(self) -> None:
        self._running: dict[str, set[TokenAnswer]] = {}
        """Changed in that one thread alone: what has ended leaves its set, and the empty ones are swept out there."""
        self._sweep_at = _LEAST_TO_SWEEP
        self._stopped: list[tuple[str, TokenAnswer]] = []
        """Those whose stop is under way, while their id may be in use anew."""

    def is_used(self, name: str) -> bool:
        """Whether a request has it that has not ended, and that nobody has stopped."""
        return bool(self._running.get(name))

    def add(self, name: str, answers: Iterable[TokenAnswer]) -> None:
        """Answers of one request, before the first of them begins."""
        if not name:
            return
        if len(self._running) >= self._sweep_at:
            self._running = {used: others for used, others in self._running.items() if others}
            self._sweep_at = max(_LEAST_TO_SWEEP, 2 * len(self._running))
        self._running[name] = set(answers)

    def remove(self, name: str) -> None:
        """A request was refused."""
        self._running.pop(name, None)

    def ended(self, name: str, answer: TokenAnswer) -> None:
        """The last answer of a request frees its id, unless it was stopped: the id may be another's by now."""
        self._running.get(name, set()).discard(answer)

    def stop(self, name: str, then: Callable[[], None]) -> bool:
        """Ends the request of that id, which may be used anew at once; `then` is called when its last response is sent.

        One that is being stopped already is waited for as well. False, and no call, where there is none.
        """
        self._stopped = [(other, answer) for other, answer in self._stopped if not answer.is_closed]
        found = list(self._running.pop(name, ()))
        self._stopped += [(name, answer) for answer in found]
        found = found or [answer for other, answer in self._stopped if other == name]
        left = itertools.count(len(found) - 1, -1)

        def call_with_the_last() -> None:
            if next(left) == 0:
                then()

        for answer in found:
            answer.stop(call_with_the_last)
        return bool(found)
