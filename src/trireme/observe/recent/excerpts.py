"""What was in slow and failed requests, kept while a recording runs and somebody has allowed to look at them."""

from __future__ import annotations

from typing import Final

from trireme.core.call_excerpt import CallExcerpt
from trireme.core.request import InferenceRequest

MOST_EXCERPTS: Final = 400
"""About 24 KiB each at most, so less than 10 MiB altogether."""


class RecentExcerpts:
    """Excerpts by number. Used on the event loop's thread."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether a recording runs."""
        self._kept: dict[int, CallExcerpt] = {}
        self._count = 0

    def open(self) -> None:
        """A recording begins."""
        self.is_open = True

    def close(self) -> None:
        """It is over: nothing of what requests held stays."""
        self.is_open = False
        self._kept.clear()

    def keep(self, request: InferenceRequest) -> int:
        """The number of the request's excerpt; 0 where it is not recorded."""
        if not self.is_open or request.recorded is None:
            return 0
        self._count += 1
        self._kept[self._count] = request.recorded.excerpt()
        if len(self._kept) > MOST_EXCERPTS:
            del self._kept[next(iter(self._kept))]
        return self._count

    def drop(self, number: int) -> None:
        """Nobody will ask for this one."""
        self._kept.pop(number, None)

    def find(self, number: int) -> CallExcerpt | None:
        """None where it is not kept any more, or never was."""
        return self._kept.get(number)
