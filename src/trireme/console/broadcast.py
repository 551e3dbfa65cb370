"""The event stream: what has changed in the table since the last second, sent to everybody who watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from trireme.console.json_text import encode
from trireme.console.rows import Key, Row
from trireme.console.sampler import Sampler
from trireme.core.errors import UnavailableError

MAX_WATCHERS: Final = 100
"""Streams at a time: each is written to every second, on the event loop."""
_SPARK_STEPS: Final = 60


class Watcher(Protocol):
    """Somebody who watches."""

    @property
    def is_there(self) -> bool:
        """Whether somebody takes what is sent."""

    def send(self, data: bytes) -> bool:
        """Sends one event's JSON; False where nobody is there any more."""

    def end(self) -> None:
        """There will be no more."""


class Broadcast:
    """Encodes each event once, whoever watches and however many come. Used on the event loop's thread."""

    def __init__(self, sampler: Sampler, server_state: Callable[[], dict[str, Any]]) -> None:
        self._sampler = sampler
        self._server_state = server_state
        self._watchers: list[Watcher] = []
        self._sent: dict[Key, Row] = {}
        self._whole: bytes | None = None  # all of the table, for those who come before it is read again
        sampler.on_rows = self._tell

    @property
    def watcher_count(self) -> int:
        """How many streams are open."""
        return len(self._watchers)

    def join(self, watcher: Watcher) -> None:
        """Sends the whole table now, and what changes from now on; raises UnavailableError where there is no room for
        one more. Whoever is gone already is sent nothing."""
        if not watcher.is_there:
            return
        self._check_room()
        if not self._watchers:
            self._sampler.watch()
            self._sent = self._sampler.rows()
            self._whole = None
        if self._whole is None:
            self._whole = self._whole_event()
        if watcher.send(self._whole):
            self._watchers.append(watcher)
        elif not self._watchers:
            self._sampler.unwatch()

    def close(self) -> None:
        """The server ends."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher.end()
        self._sampler.unwatch()

    def _tell(self, rows: dict[Key, Row]) -> None:
        before, self._sent = self._sent, rows
        self._whole = None
        changed = [row for key, row in rows.items() if (old := before.get(key)) is not row and old != row]
        gone = [list(key) for key in before if key not in rows]
        data = self._event(changed, gone)
        self._watchers = [watcher for watcher in self._watchers if watcher.send(data)]
        if not self._watchers:
            self._sampler.unwatch()

    def _check_room(self) -> None:
        """Those who have left are noticed when they are written to: they take nobody's place until then."""
        if len(self._watchers) >= MAX_WATCHERS:
            self._watchers = [watcher for watcher in self._watchers if watcher.is_there]
        if len(self._watchers) >= MAX_WATCHERS:
            raise UnavailableError(
                f"the console's live figures go to {MAX_WATCHERS} pages at a time, and so many are open: close some"
            )

    def _whole_event(self) -> bytes:
        sparks = self._sampler.models.tails("requests_per_s", _SPARK_STEPS)
        rows = [{**row, "spark": [round(value, 1) for value in sparks.get(key, ())]} for key, row in self._sent.items()]
        return self._event(rows, [], is_whole=True)

    def _event(self, rows: list[Row], gone: list[list[Any]], is_whole: bool = False) -> bytes:
        event = {"time": time.time(), "whole": is_whole, "rows": rows, "gone": gone, "server": self._server_state()}
        return encode(event)
