"""What an executor would make ready in traffic is made ready before: some at the start, the rest while nothing runs."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable

from trireme.llm.executors.port import WarmUp
from trireme.llm.options import WarmUpMode

log = logging.getLogger(__name__)

_TELL_EVERY_S = 5.0


class WarmUps:
    """Owned by the engine's thread."""

    def __init__(self, kinds: Iterable[WarmUp], mode: WarmUpMode) -> None:
        wanted = () if mode is WarmUpMode.OFF else tuple(kinds)
        is_all = mode is WarmUpMode.LOAD
        self._first = deque(kind for kind in wanted if kind.is_first or is_all)
        self._rest = deque(kind for kind in wanted if not kind.is_first and not is_all)
        self._count = len(wanted)
        self._spent_s = 0.0
        self._told = 0.0

    @property
    def has_more(self) -> bool:
        """Whether there is something to do while nothing runs."""
        return bool(self._rest)

    def run_first(self) -> None:
        """What has to be ready before the first request."""
        while self._first:
            self._run(self._first.popleft())

    def run_next(self) -> None:
        """The next of the rest."""
        self._run(self._rest.popleft())

    def _run(self, kind: WarmUp) -> None:
        began = time.monotonic()
        try:
            kind.run()
        except Exception:  # the step that needs it may never come, and if it does, it is tried again
            log.warning("%s could not be made ready", kind.name, exc_info=True)
        now = time.monotonic()
        self._spent_s += now - began
        left = len(self._first) + len(self._rest)
        if not left:
            log.info("warm-up: all %d kinds of steps are ready, after %.1f s", self._count, self._spent_s)
        elif now - self._told > _TELL_EVERY_S or not self._told:
            self._told = now
            log.info("warm-up: %d of %d kinds of steps are ready (%s)", self._count - left, self._count, kind.name)
