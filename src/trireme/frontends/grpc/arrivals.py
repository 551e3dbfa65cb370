"""The messages that arrive on one connection: held up where there is no room for them, and let in or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from trireme.frontends.inflight import ConnectionBytes
from trireme.protocol.http2.connection import Http2Connection


class Arrivals:
    """Where there is no room for them they wait together; those that are let in have room for all of them. `on_change`
    is called when the client has to wait, or need not any more."""

    __slots__ = ("_http2", "_inflight", "_is_look_due", "_let_in", "_loop", "_on_change", "are_held_up")

    def __init__(
        self,
        http2: Http2Connection,
        inflight: ConnectionBytes,
        loop: asyncio.AbstractEventLoop,
        on_change: Callable[[], None],
    ) -> None:
        self._http2 = http2
        self._inflight = inflight
        self._loop = loop
        self._on_change = on_change
        self._let_in: list[Any] = []
        """Calls of which a message has waited, and not ended yet."""
        self._is_look_due = False
        self.are_held_up = False
        """Whether there is no room for what arrives."""

    def hold(self, size_bytes: int) -> None:
        """So much more, or less, is there of what has arrived. Where there is no room for it the client has to wait,
        and after a while the messages that are on their way are refused."""
        if size_bytes > 0:
            self._inflight.arrive(size_bytes)
        else:
            self._inflight.hold(size_bytes)
        if self._let_in:
            self._look_again()
        elif self.are_held_up:
            self._look_soon()  # there is more that waits, or less
        elif size_bytes > 0 and self._inflight.excess():
            self.are_held_up = True
            self._on_change()
            self._look_soon()

    def end(self) -> None:
        """The connection is gone."""
        self._let_in = []
        self._on_change = _nothing  # the connection is freed with its last call

    def _look_soon(self) -> None:
        """When all that was read in one go is there."""
        if not self._is_look_due:
            self._is_look_due = True
            self._loop.call_soon(self._wait)

    def _wait(self) -> None:
        """Waits for room for what there is now. What never fits is refused at once: messages by themselves, and the
        later of those that are too large together."""
        self._is_look_due = False
        if not self.are_held_up:
            return
        there_bytes = missing_bytes = 0
        for call in self._midway():
            arrived, missing = call.arriving
            what = "messages of {} bytes at once are" if there_bytes else "a message of {} bytes is"
            never = self._inflight.fits_never(there_bytes + missing_bytes + arrived + missing, what)
            if never:
                call.refuse_if_midway(never)
            else:
                there_bytes += arrived
                missing_bytes += missing
        self._inflight.wait_for_room(self._read_on, self._refuse, there_bytes, missing_bytes)

    def _read_on(self) -> None:
        self.are_held_up = False
        self._begin()
        self._on_change()

    def _begin(self) -> None:
        """There is room for the rest of them, which is counted already; less of it may be missing by now. Those that
        have begun since somebody looked are not let in with them."""
        room_bytes, kept_bytes = self._inflight.promised_bytes, 0
        self._inflight.end_promise()
        self._let_in = []
        for call in self._midway() if room_bytes else ():
            missing = call.arriving[1]
            if kept_bytes + missing > room_bytes:
                break
            kept_bytes += missing
            self._let_in.append(call)
        self._inflight.promise(kept_bytes)

    def _look_again(self) -> None:
        """Something has come of them, or never will: no room is kept for the rest of one that has ended."""
        calls = self._let_in
        while calls and not (self._inflight.promised_bytes and calls[-1].is_midway):
            calls.pop()
        if not calls:
            self._inflight.end_promise()

    def _refuse(self, reason: str) -> None:
        """There was no room in time: the latest end, until there is room for those before them."""
        calls = self._midway()
        missing_bytes = sum(call.arriving[1] for call in calls)
        while calls:
            missing_bytes -= calls[-1].arriving[1]
            calls.pop().refuse_if_midway(reason)
            if calls and self._inflight.fits(0, missing_bytes):
                self._inflight.promise(missing_bytes)
                break
        self._read_on()

    def _midway(self) -> list[Any]:
        """Their calls, the earliest first."""
        calls = [stream.call for stream in self._http2.streams.values()]
        return [call for call in calls if call is not None and call.is_midway]


def _nothing() -> None:
    """Nobody is told."""
