"""Whether the client of a connection goes on: with frames and messages that it began, with reading, with asking; and
whether there is room for the messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trireme.frontends.inflight import ConnectionBytes
from trireme.frontends.pace import Pace, PaceLimits
from trireme.protocol.http2.connection import Http2Connection

_UNREAD_PATIENCE = 5
"""How much longer answers may be read slowly: clients of streams stop reading while they work."""


class Progress:
    """What one connection has moved, looked at every few seconds."""

    __slots__ = ("_begun_count", "_reading", "_taken_bytes", "arriving")

    def __init__(self, limits: PaceLimits) -> None:
        self.arriving = Pace(limits)
        self.arriving.begin_head()
        self._reading = Pace(replace(limits, slow_timeout_s=_UNREAD_PATIENCE * limits.slow_timeout_s))
        self._taken_bytes = 0  # what had left the server at the last look
        self._begun_count = 0  # frames that had begun by then

    def find_fault(self, http2: Http2Connection, unsent_bytes: int, now_s: float) -> str:
        """Why the connection is to be ended; empty where it is not. `unsent_bytes` are those in the socket's buffer."""
        if self._is_frame_late(http2, now_s):
            return "a frame was not received in time"
        if self._is_message_slow(http2, now_s):
            return "a message arrives too slowly"
        taken = http2.outbound.sent_bytes - unsent_bytes
        self._reading.moved_bytes += max(0, taken - self._taken_bytes)
        self._taken_bytes = taken
        if not http2.outbound.queued_bytes and not unsent_bytes:
            self._reading.begin_window()
        elif self._reading.is_body_slow(now_s):
            return "responses are read too slowly"
        return ""

    def is_idle_long(self, http2: Http2Connection, now_s: float) -> bool:
        """Whether there was no call for too long."""
        if http2.streams:
            self.arriving.was_used = True
        return self.arriving.is_idle_long(now_s)

    def _is_frame_late(self, http2: Http2Connection, now_s: float) -> bool:
        """Whether one and the same frame has not ended for long; a busy client is in the midst of another each time."""
        if http2.is_mid_frame and http2.begun_count == self._begun_count:
            return self.arriving.is_head_late(now_s)
        self._begun_count = http2.begun_count
        self.arriving.begin_head()
        return False

    def _is_message_slow(self, http2: Http2Connection, now_s: float) -> bool:
        if any(stream.call is not None and stream.call.awaits_client for stream in http2.streams.values()):
            return self.arriving.is_body_slow(now_s)
        self.arriving.begin_window()
        return False


class Arrivals:
    """The messages that arrive on one connection. Where there is no room for them they wait together; those that are
    let in have room for all of them."""

    __slots__ = ("_http2", "_inflight", "let_in")

    def __init__(self, http2: Http2Connection, inflight: ConnectionBytes) -> None:
        self._http2 = http2
        self._inflight = inflight
        self.let_in: list[Any] = []
        """Calls of which a message has waited, and not ended yet."""

    def wait(self, resume: Callable[[], None], refuse: Callable[[str], None]) -> None:
        """Waits for room. What never fits is refused at once: messages by themselves, and the later of those that are
        too large together."""
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
        self._inflight.wait_for_room(resume, refuse, there_bytes, missing_bytes)

    def begin(self) -> None:
        """There is room for the rest of them, which is counted already; less of it may be missing by now."""
        self.let_in = self._midway() if self._inflight.is_promised else []
        self._inflight.end_promise()
        self._inflight.promise(sum(call.arriving[1] for call in self.let_in))

    def look_again(self) -> None:
        """Something has come of them, or never will: no room is kept for the rest of one that has ended."""
        calls = self.let_in
        while calls and not (self._inflight.is_promised and calls[-1].is_midway):
            calls.pop()
        if not calls:
            self._inflight.end_promise()

    def refuse(self, reason: str) -> None:
        """There was no room in time: the latest end, until there is room for those before them."""
        calls = self._midway()
        missing_bytes = sum(call.arriving[1] for call in calls)
        while calls:
            missing_bytes -= calls[-1].arriving[1]
            calls.pop().refuse_if_midway(reason)
            if calls and self._inflight.fits(0, missing_bytes):
                self._inflight.promise(missing_bytes)
                return

    def _midway(self) -> list[Any]:
        """Their calls, the earliest first."""
        calls = [stream.call for stream in self._http2.streams.values()]
        return [call for call in calls if call is not None and call.is_midway]
